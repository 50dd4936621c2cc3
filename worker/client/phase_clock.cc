#include "worker/client/phase_clock.h"

#include <vector>

namespace pushpull {

absl::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kInput:
      return "input";
    case Phase::kPull:
      return "pull";
    case Phase::kCompute:
      return "compute";
    case Phase::kPush:
      return "push";
    case Phase::kWait:
      break;
  }
  return "wait";
}

PhaseClock::PhaseClock(const Clock* clock, TraceRow* row)
    : clock_(clock), row_(row), since_(clock->Now()) {}

PhaseClock::~PhaseClock() {
  absl::MutexLock lock(&mutex_);
  Trace(clock_->Now());
}

void PhaseClock::Trace(absl::Duration end) const {
  if (row_ == nullptr) return;
  std::vector<TraceArg> args;
  if (subject_.step.has_value()) args.push_back({"step", *subject_.step});
  if (subject_.replica.has_value()) args.push_back({"replica", uint64_t{*subject_.replica}});
  if (subject_.version.has_value()) args.push_back({"version", *subject_.version});
  row_->Add(PhaseName(phase_), since_, end, args);
}

void PhaseClock::Enter(Phase phase, const PhaseSubject& subject) {
  absl::MutexLock lock(&mutex_);
  if (phase == phase_ && subject == subject_) return;
  const absl::Duration now = clock_->Now();
  Trace(now);
  sums_[static_cast<int>(phase_)] += now - since_;
  phase_ = phase;
  subject_ = subject;
  since_ = now;
}

void PhaseClock::EnterWithSameSubject(Phase phase) {
  PhaseSubject subject;
  {
    absl::MutexLock lock(&mutex_);
    subject = subject_;
  }
  Enter(phase, subject);
}

Phase PhaseClock::phase() const {
  absl::MutexLock lock(&mutex_);
  return phase_;
}

ps::PhaseSeconds PhaseClock::Seconds() const {
  std::array<absl::Duration, kNumPhases> sums;
  {
    absl::MutexLock lock(&mutex_);
    sums = sums_;
    sums[static_cast<int>(phase_)] += clock_->Now() - since_;
  }
  const auto seconds = [&sums](Phase phase) {
    return absl::ToDoubleSeconds(sums[static_cast<int>(phase)]);
  };
  ps::PhaseSeconds result;
  result.set_input(seconds(Phase::kInput));
  result.set_pull(seconds(Phase::kPull));
  result.set_compute(seconds(Phase::kCompute));
  result.set_push(seconds(Phase::kPush));
  result.set_wait(seconds(Phase::kWait));
  return result;
}

}  // namespace pushpull
