// When the Coordinator takes checkpoints, and how the last one ends the job.
// Tested by tests/ps_server/core/coordinator_files_test.cc.
// Tested by tests/ps_server/core/coordinator_operators_test.cc.
// Tested by tests/ps_server/core/coordinator_test.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

#include "ps_server/core/coordinator.h"

namespace pushpull {
namespace {

constexpr uint32_t kMaxFinalFailures = 3;
constexpr absl::Duration kCheckpointPause = absl::Seconds(1);  // after the first failure

}  // namespace

absl::Duration Coordinator::NextCheckpoint() const {
  if (checkpoint_phase_ != CheckpointPhase::kIdle ||
      !(phase_ == Phase::kOpen || phase_ == Phase::kFinishing)) {
    return absl::InfiniteDuration();
  }
  if (version_ == durable_step_) return absl::InfiniteDuration();
  if (phase_ == Phase::kOpen && !checkpoint_calls_.empty()) return absl::ZeroDuration();
  if (phase_ == Phase::kFinishing || failures_in_a_row_ > 0) return checkpoint_retry_at_;
  if (options_.save_checkpoints_every == absl::ZeroDuration()) return absl::InfiniteDuration();
  return last_checkpoint_ + options_.save_checkpoints_every;
}

void Coordinator::StartCheckpointIfDue() {
  if (checkpoint_phase_ != CheckpointPhase::kIdle || version_ == durable_step_) return;
  const uint64_t every = options_.save_checkpoints_steps;
  const bool by_steps =
      every > 0 && failures_in_a_row_ == 0 && version_ / every > durable_step_ / every;
  const bool by_time = options_.save_checkpoints_every > absl::ZeroDuration() &&
                       failures_in_a_row_ == 0 &&
                       now_ - last_checkpoint_ >= options_.save_checkpoints_every;
  const bool again = failures_in_a_row_ > 0 && now_ >= checkpoint_retry_at_;
  const bool asked = !checkpoint_calls_.empty();
  if (!by_steps && !by_time && !again && !asked) return;
  StartCheckpoint();
}

void Coordinator::StartCheckpoint() {
  checkpoint_phase_ = CheckpointPhase::kSnapshots;
  checkpoint_step_ = version_;
  checkpoint_started_ = now_;
  ps::SnapshotRequest request;
  request.set_run_id(options_.run_id);
  request.set_epoch(serving_epoch_);
  request.set_step(version_);
  snapshots_.Start(shard_call::Snapshot{request}, options_.tasks, now_, &actions_);
}

void Coordinator::OnSnapshotsWritten() {
  coordinator_action::PublishCheckpoint publish;
  publish.step = checkpoint_step_;
  publish.epoch = serving_epoch_;
  publish.training_done = options_.num_steps > 0 && checkpoint_step_ >= options_.num_steps;
  for (ShardReply& reply : snapshots_.replies()) {
    publish.shards.push_back(std::get<ps::SnapshotReply>(std::move(reply)));
  }
  snapshots_.Stop();
  checkpoint_phase_ = CheckpointPhase::kPublishing;
  actions_.push_back(std::move(publish));
}

void Coordinator::On(const coordinator_event::CheckpointPublished& event) {
  if (checkpoint_phase_ != CheckpointPhase::kPublishing || event.step != checkpoint_step_) return;
  if (absl::IsAborted(event.status)) {
    ++counters_.checkpoint_failures;
    Stop(event.status);
    return;
  }
  if (!event.status.ok()) {
    FailCheckpoint(event.status);
    return;
  }
  checkpoint_phase_ = CheckpointPhase::kIdle;
  failures_in_a_row_ = 0;
  durable_step_ = event.step;
  checkpoint_ = VersionId{serving_epoch_, event.step};
  last_checkpoint_ = now_;
  counters_.published_at = now_;
  counters_.checkpoint_took = now_ - checkpoint_started_;
  ++counters_.checkpoints;
  AnswerCheckpoints();
  if (phase_ == Phase::kOpen) StartCheckpointIfDue();
  if (phase_ == Phase::kFinishing) FinishIfSaved();
}

void Coordinator::FailCheckpoint(const absl::Status& status) {
  ++counters_.checkpoint_failures;
  checkpoint_retry_at_ = now_ + kCheckpointPause * (1 << std::min<uint32_t>(failures_in_a_row_, 6));
  ++failures_in_a_row_;
  Warn(absl::StrFormat("the checkpoint of step %d failed, the one of step %d stays the newest: %s",
                       checkpoint_step_, durable_step_, status.ToString()));
  RefuseCheckpoints(checkpoint_step_, status);
  AbandonCheckpoint();
  // A checkpoint that began before the last step does not count as a failure of the final one.
  if (phase_ != Phase::kFinishing || checkpoint_step_ != version_) return;
  if (++final_failures_ < kMaxFinalFailures) return;
  if (draining_) {
    phase_ = Phase::kDrained;
    actions_.push_back(coordinator_action::Drained{});
  } else {
    Stop(absl::Status(status.code(), absl::StrFormat("the last checkpoint could not be written: %s",
                                                     status.message())));
  }
}

void Coordinator::AbandonCheckpoint() {
  if (checkpoint_phase_ == CheckpointPhase::kIdle) return;
  snapshots_.Stop();
  checkpoint_phase_ = CheckpointPhase::kIdle;
  actions_.push_back(coordinator_action::AbandonCheckpoint{checkpoint_step_});
}

void Coordinator::FinishIfSaved() {
  if (checkpoint_phase_ != CheckpointPhase::kIdle) return;
  if (version_ != durable_step_) {
    if (now_ >= checkpoint_retry_at_) StartCheckpoint();
    return;
  }
  polls_.Stop();
  if (AllStepsApplied()) {
    phase_ = Phase::kDone;
    actions_.push_back(coordinator_action::Finished{});
  } else {
    phase_ = Phase::kDrained;
    actions_.push_back(coordinator_action::Drained{});
  }
}

}  // namespace pushpull
