// How the Coordinator begins an epoch, after a start and after a shard has restarted.
// Tested by tests/ps_server/core/coordinator_test.cc.
// Tested by tests/ps_server/core/epochs_test.cc.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "ps_server/core/coordinator.h"
#include "ps_server/core/epochs.h"
#include "ps_server/core/protocol_error.h"
#include "ps_server/core/recovery.h"

namespace pushpull {
namespace {

// After this many failures in a row, another attempt would not help.
constexpr uint32_t kMaxMappedFailures = 2;
constexpr uint32_t kMaxApplyFailures = 3;

bool MayBeCuredByRepeating(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kUnknown:
      return true;
    default:
      return false;
  }
}

absl::string_view SourceName(ps::RestoreRequest::Source source) {
  switch (source) {
    case ps::RestoreRequest::MAPPED:
      return "the servers' memory";
    case ps::RestoreRequest::CHECKPOINT:
      return "the checkpoint";
    default:
      return "initial variables";
  }
}

}  // namespace

void Coordinator::BeginEpoch(const std::string& why) {
  if (next_epoch_ >= kMaxEpoch) {
    Stop(absl::FailedPreconditionError(absl::StrFormat(
        "epoch %d is the last there can be; the EPOCH file of the train_dir should hold a number "
        "that is just above every \"epoch\" in its MANIFEST.json files",
        next_epoch_)));
    return;
  }
  ++next_epoch_;
  phase_ = Phase::kPersistingEpoch;
  phase_since_ = now_;
  const absl::Duration pause = epoch_pace_.NextPause(now_);
  persist_at_ = now_ + pause;
  if (serving_epoch_ != 0) {
    Warn(absl::StrFormat("epoch %d ends: %s; epoch %d begins %s", serving_epoch_, why, next_epoch_,
                         pause == absl::ZeroDuration()
                             ? "at once"
                             : absl::StrCat("in ", absl::FormatDuration(pause))));
  }
  calls_.Stop();
  polls_.Stop();
  AbandonCheckpoint();
  AnswerPendingPushes(ProtocolError(ps::ErrorDetail::EPOCH_CHANGED, next_epoch_, version_,
                                    "the server begins a new epoch: register again"));
  RefuseCheckpoints(UINT64_MAX, ProtocolError(ps::ErrorDetail::NOT_READY, next_epoch_, version_,
                                              "the server begins a new epoch: ask again"));
  PersistEpochIfDue();
}

void Coordinator::PersistEpochIfDue() {
  if (phase_ != Phase::kPersistingEpoch || now_ < persist_at_) return;
  persist_at_ = absl::InfiniteDuration();
  actions_.push_back(coordinator_action::PersistEpoch{next_epoch_});
}

void Coordinator::On(const coordinator_event::EpochPersisted& event) {
  if (phase_ != Phase::kPersistingEpoch || event.epoch != next_epoch_) return;
  if (!event.status.ok()) {
    Stop(absl::Status(event.status.code(), absl::StrFormat("epoch %d could not be written: %s",
                                                           event.epoch, event.status.message())));
    return;
  }
  serving_epoch_ = event.epoch;
  phase_ = Phase::kFindingCheckpoint;
  actions_.push_back(coordinator_action::FindCheckpoint{});
}

void Coordinator::On(const coordinator_event::CheckpointFound& event) {
  if (phase_ != Phase::kFindingCheckpoint) return;
  if (!event.checkpoint.ok()) {
    Stop(event.checkpoint.status());
    return;
  }
  checkpoint_ = *event.checkpoint;
  durable_step_ = checkpoint_.has_value() ? checkpoint_->version : 0;
  phase_ = Phase::kQueryingShards;
  calls_.Start(shard_call::GetState{}, options_.tasks, now_, &actions_);
}

void Coordinator::OnShardStates() {
  std::vector<ps::ShardStateReply> states;
  boot_ids_.clear();
  uint64_t newest_epoch = 0;
  for (ShardReply& reply : calls_.replies()) {
    ps::ShardStateReply& state = std::get<ps::ShardStateReply>(reply);
    boot_ids_.push_back(state.boot_id());
    for (const ps::HeldVersion& held : state.held()) {
      newest_epoch = std::max(newest_epoch, held.epoch());
    }
    const bool goes_back = options_.from_checkpoint && !has_taken_over_;
    if (goes_back || mapped_failures_ >= kMaxMappedFailures) state.clear_held();
    if (!rules_.compare_epochs) {
      for (ps::HeldVersion& held : *state.mutable_held()) held.set_epoch(UINT64_MAX);
    }
    states.push_back(std::move(state));
  }
  if (newest_epoch >= serving_epoch_ && newest_epoch < kMaxEpoch) {
    next_epoch_ = std::max(next_epoch_, newest_epoch);
    BeginEpoch(absl::StrFormat(
        "a shard holds a version of epoch %d, so the EPOCH file is older than the shards",
        newest_epoch));
    return;
  }
  const RestorePoint point = ChooseRestorePoint(options_.run_id, states, checkpoint_, version_);
  for (const std::string& warning : point.warnings) Warn(warning);
  rolled_back_steps_ = point.rolled_back_steps;
  restore_.set_run_id(options_.run_id);
  restore_.set_epoch(serving_epoch_);
  restore_.set_step(point.id.version);
  restore_.set_version_epoch(point.id.epoch);
  restore_.set_source(point.source);
  restore_.mutable_boot_ids()->Assign(boot_ids_.begin(), boot_ids_.end());
  phase_ = Phase::kRestoring;
  calls_.Start(shard_call::Restore{restore_}, options_.tasks, now_, &actions_);
}

absl::Duration Coordinator::FinishedRunLimit() const {
  const bool is_finished = phase_ == Phase::kQueryingShards && options_.num_steps > 0 &&
                           !options_.from_checkpoint && checkpoint_.has_value() &&
                           checkpoint_->version >= options_.num_steps;
  return is_finished ? phase_since_ + options_.lease : absl::InfiniteDuration();
}

void Coordinator::FinishWithoutShards() {
  Warn(absl::StrFormat(
      "not every ps task answers, but the checkpoint of step %d is the end of this run: the other "
      "tasks have probably ended with it, and this one ends too",
      checkpoint_->version));
  calls_.Stop();
  version_ = checkpoint_->version;
  phase_ = Phase::kDone;
  actions_.push_back(coordinator_action::Finished{});
}

bool Coordinator::RestoreMarks() {
  if (options_.sync || !rules_.restore_push_marks) {
    positions_ = ReplicaPositions();
    return true;
  }
  const std::vector<ShardReply> replies = calls_.replies();
  const std::string& marks = std::get<ps::RestoreReply>(replies[0]).marks();
  for (size_t shard = 1; shard < replies.size(); ++shard) {
    if (std::get<ps::RestoreReply>(replies[shard]).marks() == marks) continue;
    const std::string what = absl::StrFormat(
        "shards 0 and %d have stored version %d with different positions of the replicas", shard,
        restore_.step());
    if (restore_.source() == ps::RestoreRequest::MAPPED) {
      ++mapped_failures_;
      BeginEpoch(what);
    } else {
      Stop(absl::InternalError(what));
    }
    return false;
  }
  if (!positions_.Restore(marks, restore_.step())) {
    Warn(absl::StrFormat(
        "version %d was written by a release that did not keep the replicas' positions: every "
        "replica "
        "goes on with an equal share of the %d batches, of which a few may be trained again",
        restore_.step(), restore_.step()));
  }
  return true;
}

void Coordinator::OnAllRestored() {
  if (!RestoreMarks()) return;
  calls_.Stop();
  mapped_failures_ = 0;
  if (has_taken_over_) return BeginServing();
  phase_ = Phase::kTakingOver;
  actions_.push_back(coordinator_action::TakeOver{});
}

void Coordinator::On(const coordinator_event::TookOver& event) {
  if (!event.status.ok()) {
    Stop(event.status);
    return;
  }
  has_taken_over_ = true;
  if (phase_ == Phase::kTakingOver) BeginServing();
}

void Coordinator::BeginServing() {
  version_ = restore_.step();
  replicas_.BeginEpoch(serving_epoch_, now_);
  last_included_.clear();
  lagging_.clear();
  last_checkpoint_ = now_;
  checkpoint_retry_at_ = absl::ZeroDuration();
  next_poll_ = now_ + options_.shard_poll;
  epoch_pace_.NoteServing(now_);
  std::string from =
      absl::StrFormat("epoch %d begins with step %d of epoch %d from %s", serving_epoch_, version_,
                      restore_.version_epoch(), SourceName(restore_.source()));
  if (restore_.source() == ps::RestoreRequest::MAPPED && version_ > durable_step_) {
    absl::StrAppendFormat(&from,
                          "; the newest checkpoint is of step %d (--from_checkpoint goes back)",
                          durable_step_);
  }
  if (rolled_back_steps_ > 0) {
    Warn(absl::StrFormat("%s, %d steps back", from, rolled_back_steps_));
  } else {
    Tell(from);
  }
  actions_.push_back(
      coordinator_action::Serving{serving_epoch_, version_, restore_.source(), rolled_back_steps_});
  GoOn();
}

void Coordinator::HandleShardFailure(FanOut* fan_out, uint32_t shard, const absl::Status& status) {
  const ps::ErrorDetail detail = GetErrorDetail(status);
  if (!IsPlausibleEpoch(detail.epoch(), next_epoch_)) {
    Warn(
        absl::StrFormat("shard %d of %d says that it is in epoch %d, which cannot be in a job that "
                        "is in epoch %d; restart its ps task",
                        shard, options_.tasks, detail.epoch(), next_epoch_));
    fan_out->SetFailed(shard, now_);
    return;
  }
  const bool lost_epoch = detail.kind() == ps::ErrorDetail::NOT_READY ||
                          detail.kind() == ps::ErrorDetail::EPOCH_CHANGED;
  if (lost_epoch && IsServing() && rules_.check_boot_id) {
    next_epoch_ = std::max(next_epoch_, detail.epoch());
    BeginEpoch(absl::StrFormat("shard %d does not know it: %s", shard, status.message()));
    return;
  }
  if (MayBeCuredByRepeating(status)) {
    fan_out->SetFailed(shard, now_);
    return;
  }
  const std::string what =
      absl::StrFormat("shard %d of %d: %s", shard, options_.tasks, status.message());
  if (fan_out == &snapshots_) {
    FailCheckpoint(absl::Status(status.code(), what));
  } else if (fan_out == &polls_) {
    fan_out->SetFailed(shard, now_);
  } else if (phase_ == Phase::kRestoring && detail.kind() == ps::ErrorDetail::EPOCH_CHANGED) {
    next_epoch_ = std::max(next_epoch_, detail.epoch());
    BeginEpoch(what);
  } else if (phase_ == Phase::kRestoring && restore_.source() == ps::RestoreRequest::MAPPED) {
    ++mapped_failures_;
    BeginEpoch(what);
  } else if ((phase_ == Phase::kApplying || phase_ == Phase::kMeasuring) &&
             ++apply_failures_ < kMaxApplyFailures) {
    BeginEpoch(what);
  } else {
    Stop(absl::Status(status.code(), what));
  }
}

bool Coordinator::CheckShardState(uint32_t shard, const ps::ShardStateReply& state) {
  if (!rules_.check_boot_id) return true;
  if (state.boot_id() == boot_ids_[shard] && state.epoch() == serving_epoch_) return true;
  BeginEpoch(absl::StrFormat("shard %d of %d has restarted", shard, options_.tasks));
  return false;
}

void Coordinator::Stop(const absl::Status& reason) {
  if (phase_ == Phase::kStopped) return;
  phase_ = Phase::kStopped;
  stop_reason_ = reason;
  calls_.Stop();
  polls_.Stop();
  AbandonCheckpoint();
  AnswerPendingPushes(StoppedError());
  RefuseCheckpoints(UINT64_MAX, CheckOperator());
  actions_.push_back(coordinator_action::Stopped{reason});
}

}  // namespace pushpull
