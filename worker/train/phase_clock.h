// Where the time of a clone's training thread goes: seconds per phase, and a span per phase in the
// trace.
#ifndef PUSHPULL_WORKER_TRAIN_PHASE_CLOCK_H_
#define PUSHPULL_WORKER_TRAIN_PHASE_CLOCK_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/trace/trace_writer.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

enum class Phase {
  kInput,    // waits for the batch
  kPull,     // receives weights
  kCompute,  // forward and backward
  kPush,     // sends the rest of the gradient, until it is committed
  kWait,     // for the step of the others, or for the server
};
inline constexpr int kNumPhases = 5;

absl::string_view PhaseName(Phase phase);  // "input", ...

// What a phase is about, for the trace.
struct PhaseSubject {
  std::optional<uint64_t> step = std::nullopt;
  std::optional<uint32_t> slot = std::nullopt;
  std::optional<uint64_t> version = std::nullopt;
  bool operator==(const PhaseSubject&) const = default;
};

// Enter is called by one thread, the rest by any. The phases follow each other without a gap from
// construction on, so their sum is the time since then.
class PhaseClock {
 public:
  // Begins with kWait. clock and row must outlive the object; row null: no trace.
  explicit PhaseClock(const Clock* clock, TraceRow* row = nullptr);
  ~PhaseClock();  // the running phase's span ends
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  // The running phase ends, `phase` begins. The same phase about the same subject goes on.
  void Enter(Phase phase, const PhaseSubject& subject = {});

  Phase phase() const;
  // Sums until now, the running phase included.
  ps::PhaseSeconds Seconds() const;

 private:
  void Trace(absl::Duration end) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  TraceRow* const row_;
  mutable absl::Mutex mutex_;
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kWait;
  PhaseSubject subject_ ABSL_GUARDED_BY(mutex_);
  absl::Duration since_ ABSL_GUARDED_BY(mutex_);
  std::array<absl::Duration, kNumPhases> sums_ ABSL_GUARDED_BY(mutex_) = {};
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_PHASE_CLOCK_H_
