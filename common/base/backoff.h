// Computes how long to wait before the next attempt: exponential backoff with jitter, so that
// clones that lost the same server do not all reconnect at the same moment.
//
// Reads no clock: the sequence of delays depends only on the options, the seed and the calls made.
// Not thread-safe.
#ifndef PUSHPULL_COMMON_BASE_BACKOFF_H_
#define PUSHPULL_COMMON_BASE_BACKOFF_H_

#include <cstdint>

#include "absl/time/time.h"

#include "common/base/random.h"

namespace pushpull {

class Backoff {
 public:
  struct Options {
    absl::Duration initial = absl::Milliseconds(50);
    absl::Duration maximum = absl::Seconds(2);
    double multiplier = 1.6;
    // Each delay is the nominal one times a random factor in [1 - jitter, 1 + jitter).
    double jitter = 0.3;
  };

  Backoff(const Options& options, uint64_t seed);

  // Returns the delay before the next attempt.
  absl::Duration Next();
  // Call after a success: the next nominal delay is `initial` again. The random sequence goes on,
  // so the jitter does not repeat.
  void Reset();

 private:
  Options options_;
  absl::Duration nominal_;
  CounterRandom random_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_BACKOFF_H_
