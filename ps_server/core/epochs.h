// Limits on epochs: which numbers are plausible, and how soon one epoch may follow another.
#ifndef PUSHPULL_PS_SERVER_CORE_EPOCHS_H_
#define PUSHPULL_PS_SERVER_CORE_EPOCHS_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace pushpull {

// The largest epoch, because a grant is epoch << 32 | counter in 64 bits.
inline constexpr uint64_t kMaxEpoch = (uint64_t{1} << 32) - 1;

// Returns whether a peer may name `epoch` to a process that is in epoch `own` (0: in none yet). An
// epoch more than 2^20 ahead can only be a fault or a lie, and a process that adopted it could
// never go back.
bool IsPlausibleEpoch(uint64_t epoch, uint64_t own);

// Computes the pause before each epoch. Every epoch costs a write to disk and makes all clones
// register again, so an epoch that failed soon after it began must not be followed at once by the
// next one. Not thread-safe.
class EpochPace {
 public:
  struct Options {
    // The pause before the third epoch in a row. It doubles with each further epoch, up to
    // last_pause. The second epoch starts without a pause, because a server that starts often finds
    // a shard that is starting too.
    absl::Duration first_pause = absl::Milliseconds(50);
    absl::Duration last_pause = absl::Seconds(10);
    // An epoch that has served this long ends the row.
    absl::Duration held = absl::Seconds(2);
  };

  explicit EpochPace(const Options& options) : options_(options) {}

  // Returns the pause before the epoch that is about to begin, and counts that epoch.
  absl::Duration NextPause(absl::Duration now);
  // The current epoch serves from `now` on.
  void NoteServing(absl::Duration now) { serving_since_ = now; }

 private:
  const Options options_;
  std::optional<absl::Duration> serving_since_;
  int in_a_row_ = 0;  // epochs begun since one served for Options::held
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_EPOCHS_H_
