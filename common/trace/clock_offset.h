// What the steady clock of another process shows, estimated from round trips with it, so that the
// traces of several hosts have one clock.
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
  // Two clocks run apart by at most so much: PHI of RFC 5905, chapter 7.2.
  static constexpr double kMaxDrift = 15e-6;

  // A question left at `sent`, its answer came at `received`, both by the own clock; in between the
  // other process read `remote` from its own. Keeps the sample whose error is bounded best now; one
  // that contradicts the kept one means that another clock answers (the server was started again on
  // another host), and replaces it.
  void AddSample(absl::Duration sent, absl::Duration received, absl::Duration remote);

  // The other clock when the own one shows `local`; `local` itself before the first sample.
  absl::Duration ToRemote(absl::Duration local) const;

  // ToRemote(local) is off by at most so much; infinite before the first sample. Half the round
  // trip of the kept sample, plus what the clocks may have drifted since.
  absl::Duration ErrorBound(absl::Duration local) const;

  // For the log: "ahead by -12.3 us, known to within 85.0 us".
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
