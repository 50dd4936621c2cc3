// Tested by tests/worker/client/sync_training_test.cc.
// How CloneTrainer counts, reports and sends heartbeats.
#include <algorithm>
#include <string>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/client/clone_trainer.h"

namespace pushpull {
namespace {

// How long, and after which pauses, a clone that ends repeats a last heartbeat that may be lost.
constexpr absl::Duration kLastHeartbeatLimit = absl::Seconds(1);
constexpr absl::Duration kLastHeartbeatPause = absl::Milliseconds(50);

}  // namespace

absl::Status CloneTrainer::AwaitInput(absl::FunctionRef<absl::Status()> load) {
  phase_.EnterWithSameSubject(Phase::kInput);
  PP_RETURN_IF_ERROR(load());
  phase_.EnterWithSameSubject(Phase::kCompute);
  return absl::OkStatus();
}

void CloneTrainer::StartRate() {
  absl::MutexLock lock(&rate_mutex_);
  rate_.Start(clock_->Now());
}

void CloneTrainer::NoteImages(uint64_t samples) {
  ++contributions_;
  images_ += samples;
  absl::MutexLock lock(&rate_mutex_);
  rate_.Add(clock_->Now(), samples);
}

double CloneTrainer::ImagesPerSecond() const {
  absl::MutexLock lock(&rate_mutex_);
  return rate_.At(clock_->Now()).amount_per_second;
}

void CloneTrainer::Report(const GradientResult& result, uint64_t step, uint64_t staleness) {
  last_report_.step = step;
  last_report_.num_steps = session_->num_steps();
  last_report_.loss = result.loss;
  for (const ps::Metric& metric : result.metrics) {
    if (metric.name() == "accuracy") last_report_.accuracy = metric.value();
  }
  last_report_.learning_rate = session_->learning_rate();
  last_report_.images_per_second = ImagesPerSecond();
  last_report_.images = images_.load();
  last_report_.staleness = staleness;
  last_report_.waiting_for.clear();
  report_(last_report_);
}

void CloneTrainer::ReportWaiting() {
  last_report_.images_per_second = ImagesPerSecond();
  // What the step waits for is reported by the clones that have replicas.
  const bool has_no_replica =
      sync_ && session_->grants().empty() && (!AllApplied() || session_->is_spare());
  if (has_no_replica && session_->silent_peer().empty()) {
    last_report_.waiting_for = kWaitOfSpare;
  } else {
    last_report_.waiting_for = session_->waiting_for();
    if (last_report_.waiting_for.empty() && AllApplied()) {
      last_report_.waiting_for = "the last checkpoint";
    }
  }
  report_(last_report_);
}

absl::Status CloneTrainer::Beat() {
  ps::CloneProgress progress;
  progress.set_images_per_second(ImagesPerSecond());
  progress.set_phase(std::string(PhaseName(phase_.phase())));
  *progress.mutable_phase_seconds() = phase_.Seconds();
  progress.set_contributions(contributions_.load());
  progress.set_images(images_.load());
  const bool knows_end = KnowsEnd();
  progress.set_knows_end(knows_end);
  if (options_.instruments.gpu) {
    if (const auto figures = options_.instruments.gpu()) *progress.mutable_gpu() = *figures;
  }
  const absl::Status status = session_->Heartbeat(progress);
  if (knows_end && !IsTransient(status)) has_told_end_.store(true);
  return status;
}

bool CloneTrainer::KnowsEnd() const {
  return !session_->stop_reason().ok() ||
         (session_->training_done() && !wants_last_weights_.load());
}

void CloneTrainer::RunHeartbeat() {
  bool knew_end = false;
  do {
    // The training thread meets a failing server in its own next call. The session remembers that
    // training was stopped.
    Beat().IgnoreError();
    // The server does not wait for the contribution that this clone may be computing.
    if (!std::exchange(knew_end, KnowsEnd()) && knew_end) Beat().IgnoreError();
  } while (!heartbeat_stop_.WaitFor(std::min(session_->lease() / 4, absl::Seconds(1))));
}

void CloneTrainer::EndHeartbeats(const absl::Status& result) {
  StopHeartbeat();
  // The training thread may be the only one that was told why training was stopped.
  session_->NoteStop(result);
  // The server waits for this clone until it hears of its end, or until the lease has ended.
  const absl::Duration limit = clock_->Now() + kLastHeartbeatLimit;
  const bool leaves =
      stop_.load() || (options_.leaves_when_aborted && result.code() == absl::StatusCode::kAborted);
  while (IsTransient(SayThatItEnds(leaves)) && clock_->Now() < limit) {
    clock_->Sleep(kLastHeartbeatPause);
  }
}

absl::Status CloneTrainer::SayThatItEnds(bool leaves) {
  if (KnowsEnd()) return has_told_end_.load() ? absl::OkStatus() : Beat();
  return leaves ? session_->Leave() : absl::OkStatus();
}

}  // namespace pushpull
