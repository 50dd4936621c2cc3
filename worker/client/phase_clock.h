// Measures in which phases a clone's training thread spends its time. Sums up the seconds per phase
// and writes a span per phase to the trace.
#ifndef PUSHPULL_WORKER_CLIENT_PHASE_CLOCK_H_
#define PUSHPULL_WORKER_CLIENT_PHASE_CLOCK_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/trace/trace_writer.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

enum class Phase {
  kInput,    // waiting for the batch
  kPull,     // receiving weights
  kCompute,  // forward and backward pass
  kPush,     // sending the rest of the gradient, until it is committed
  kWait,     // waiting for other clones to complete the step, or for the server
};
inline constexpr int kNumPhases = 5;

absl::string_view PhaseName(Phase phase);  // "input", ...

// What the trace shows of a phase besides its name.
struct PhaseSubject {
  std::optional<uint64_t> step = std::nullopt;
  std::optional<uint32_t> replica = std::nullopt;
  std::optional<uint64_t> version = std::nullopt;
  bool operator==(const PhaseSubject&) const = default;
};

// Thread rule: one thread enters phases; other functions are called by any. Phases follow one
// another without gaps, so their sum is the time since construction.
class PhaseClock {
 public:
  // Starts in kWait. `clock` and `row` must outlive the object. Writes no trace if `row` is null.
  explicit PhaseClock(const Clock* clock, TraceRow* row = nullptr);
  ~PhaseClock();  // ends the span of the current phase
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  // Ends the current phase and begins `phase`. Has no effect if phase and subject stay the same.
  void Enter(Phase phase, const PhaseSubject& subject = {});
  // Does the same with the subject of the current phase.
  void EnterWithSameSubject(Phase phase);

  Phase phase() const;
  // The sums until now, including the current phase.
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

#endif  // PUSHPULL_WORKER_CLIENT_PHASE_CLOCK_H_
