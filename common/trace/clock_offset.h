// Estimates what the steady clock of another process (the remote clock) shows, from round trips
// with that process. The traces of several hosts use it to share one clock.
#ifndef PUSHPULL_COMMON_TRACE_CLOCK_OFFSET_H_
#define PUSHPULL_COMMON_TRACE_CLOCK_OFFSET_H_

#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace pushpull {

// Thread-safe.
class ClockOffset {
 public:
  // The largest drift between two clocks, in seconds per second: PHI of RFC 5905, chapter 7.2.
  static constexpr double kMaxDrift = 15e-6;

  // Adds one round trip: the request left at `sent` and the reply arrived at `received`, both on
  // the local clock; in between, the other process read `remote` from its clock.
  //
  // Only one sample is kept, the one with the smallest error bound now. A sample that contradicts
  // it, by more than both error bounds allow, replaces it: the clock is another one, because the
  // server was restarted on another host.
  void AddSample(absl::Duration sent, absl::Duration received, absl::Duration remote);

  // Returns what the remote clock shows when the local clock shows `local`. Returns `local` before
  // the first sample.
  absl::Duration ToRemote(absl::Duration local) const;

  // Returns the largest possible error of ToRemote(local): half the round trip of the kept sample,
  // plus the possible drift since then. Infinite before the first sample.
  absl::Duration ErrorBound(absl::Duration local) const;

  // Returns a text for the log, "ahead by -12.3 us, known to within 85.0 us".
  std::string Describe(absl::Duration local) const;

 private:
  struct Sample {
    absl::Duration sent;
    absl::Duration offset;
    absl::Duration half_round_trip;
    absl::Duration ErrorAt(absl::Duration local) const;
  };

  mutable absl::Mutex mutex_;
  std::optional<Sample> best_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_TRACE_CLOCK_OFFSET_H_
