// Limits on epochs: how large a number is plausible, and how soon one epoch may follow another.
#ifndef PUSHPULL_PS_SERVER_CORE_EPOCHS_H_
#define PUSHPULL_PS_SERVER_CORE_EPOCHS_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace pushpull {

// A grant is epoch << 32 | counter, in 64 bits.
inline constexpr uint64_t kMaxEpoch = (uint64_t{1} << 32) - 1;

// Whether a peer may name this epoch to a process that is in epoch `own` (0: it is in none yet). An
// epoch far ahead of its own can only be a fault or a lie, and whoever took it over could never go
// back.
bool IsPlausibleEpoch(uint64_t epoch, uint64_t own);

// The pauses between epochs. Every epoch costs a write to the disk and makes all clones register
// again, so an epoch that ends soon after it began must not be followed by the next one at once.
// Not thread-safe.
class EpochPace {
 public:
  struct Options {
    // Before the third of several epochs in a row; doubled for each further one up to last_pause.
    // The second has none: a server that starts may find a shard that starts too.
    absl::Duration first_pause = absl::Milliseconds(50);
    absl::Duration last_pause = absl::Seconds(10);
    // An epoch that serves for so long ends the row.
    absl::Duration held = absl::Seconds(2);
  };

  explicit EpochPace(const Options& options) : options_(options) {}

  // The pause before the epoch that is to begin now.
  absl::Duration NextPause(absl::Duration now);
  // The epoch serves from now on.
  void NoteServing(absl::Duration now) { serving_since_ = now; }

 private:
  const Options options_;
  std::optional<absl::Duration> serving_since_;
  int in_a_row_ = 0;  // epochs begun, none of which has held
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_EPOCHS_H_
