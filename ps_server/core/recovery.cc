#include "ps_server/core/recovery.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/passing_error.h"
#include "common/wire/error_detail.h"
#include "ps_server/core/restore_point.h"

namespace pushpull {
namespace {

// After this many failures in a row, another attempt would not help.
constexpr uint32_t kMaxMappedFailures = 2;

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

Recovery::Recovery(const CoordinatorOptions& options, const JobState& job,
                   CoordinatorActions* actions)
    : options_(options), job_(job), actions_(actions), epoch_pace_(options.epoch_pace) {}

absl::Status Recovery::BeginEpoch(const std::string& why) {
  if (next_epoch_ >= kMaxEpoch) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "epoch %d is the last there can be; the EPOCH file of the train_dir should hold a number "
        "that is just above every \"epoch\" in its MANIFEST.json files",
        next_epoch_));
  }
  ++next_epoch_;
  phase_ = Phase::kPersistingEpoch;
  begun_ = job_.now;
  const absl::Duration pause = epoch_pace_.NextPause(job_.now);
  persist_at_ = job_.now + pause;
  if (job_.epoch != 0) {
    Warn(absl::StrFormat("epoch %d ends: %s; epoch %d begins %s", job_.epoch, why, next_epoch_,
                         pause == absl::ZeroDuration()
                             ? "at once"
                             : absl::StrCat("in ", absl::FormatDuration(pause))),
         actions_);
  }
  return absl::OkStatus();
}

void Recovery::PersistIfDue() {
  if (phase_ != Phase::kPersistingEpoch || job_.now < persist_at_) return;
  persist_at_ = absl::InfiniteDuration();
  actions_->push_back(coordinator_action::PersistEpoch{next_epoch_});
}

Followup Recovery::OnEpochPersisted(const coordinator_event::EpochPersisted& event) {
  if (phase_ != Phase::kPersistingEpoch || event.epoch != next_epoch_) return followup::None{};
  if (!event.status.ok()) {
    return RepeatIfPassing(Annotated(
        event.status,
        absl::StrFormat("epoch %d could not begin: %s", event.epoch, event.status.message())));
  }
  phase_ = Phase::kFindingCheckpoint;
  actions_->push_back(coordinator_action::FindCheckpoint{});
  return followup::EpochPersisted{event.epoch};
}

Followup Recovery::OnCheckpointFound(const coordinator_event::CheckpointFound& event) {
  if (phase_ != Phase::kFindingCheckpoint) return followup::None{};
  if (!event.checkpoint.ok()) return RepeatIfPassing(event.checkpoint.status());
  obstacle_.clear();  // the disk is written and read: nothing else is repeated
  checkpoint_ = *event.checkpoint;
  phase_ = Phase::kQueryingShards;
  return followup::CheckpointFound{checkpoint_};
}

Followup Recovery::RepeatIfPassing(const absl::Status& status) {
  if (!IsPassing(status)) return followup::Stop{status};
  if (obstacle_.empty()) obstacle_since_ = job_.now;
  if (job_.now - obstacle_since_ >= options_.disk_patience) return followup::Stop{status};
  obstacle_ = std::string(status.message());
  // Later epochs are announced by BeginEpoch.
  if (job_.epoch == 0) Warn(absl::StrCat(obstacle_, "; this is tried again"), actions_);
  return followup::BeginEpoch{obstacle_};
}

Followup Recovery::OnReplies(const std::vector<ShardReply>& replies) {
  return phase_ == Phase::kQueryingShards ? OnShardStates(replies) : OnRestored(replies);
}

Followup Recovery::OnShardStates(const std::vector<ShardReply>& replies) {
  std::vector<ps::ShardStateReply> states;
  restore_.clear_boot_ids();
  uint64_t newest_epoch = 0;
  const bool goes_back = options_.from_checkpoint && !has_taken_over_;
  for (const ShardReply& reply : replies) {
    ps::ShardStateReply& state = states.emplace_back(std::get<ps::ShardStateReply>(reply));
    restore_.add_boot_ids(state.boot_id());
    for (const ps::HeldVersion& held : state.held()) {
      newest_epoch = std::max(newest_epoch, held.epoch());
    }
    if (goes_back || mapped_failures_ >= kMaxMappedFailures) state.clear_held();
  }
  if (newest_epoch >= job_.epoch && newest_epoch < kMaxEpoch) {
    next_epoch_ = std::max(next_epoch_, newest_epoch);
    return followup::BeginEpoch{absl::StrFormat(
        "a shard holds a version of epoch %d, so the EPOCH file is older than the shards",
        newest_epoch)};
  }
  std::optional<VersionId> checkpoint;
  if (checkpoint_.has_value()) checkpoint = checkpoint_->id;
  const RestorePoint point = ChooseRestorePoint(options_.run_id, states, checkpoint, job_.version);
  for (const std::string& warning : point.warnings) Warn(warning, actions_);
  rolled_back_steps_ = point.rolled_back_steps;
  restore_.set_run_id(options_.run_id);
  restore_.set_epoch(job_.epoch);
  restore_.set_step(point.id.version);
  restore_.set_version_epoch(point.id.epoch);
  restore_.set_source(point.source);
  phase_ = Phase::kRestoring;
  return followup::CallShards{shard_call::Restore{restore_}};
}

Followup Recovery::OnRestored(const std::vector<ShardReply>& replies) {
  const std::string& marks = std::get<ps::RestoreReply>(replies[0]).marks();
  for (size_t shard = 1; shard < replies.size() && !options_.sync; ++shard) {
    if (std::get<ps::RestoreReply>(replies[shard]).marks() == marks) continue;
    return RetryWithoutMemory(absl::InternalError(absl::StrFormat(
        "shards 0 and %d have stored version %d with different positions of the replicas", shard,
        restore_.step())));
  }
  mapped_failures_ = 0;
  return followup::Restored{restore_.step(), marks};
}

Followup Recovery::RetryWithoutMemory(const absl::Status& status) {
  if (restore_.source() != ps::RestoreRequest::MAPPED) return followup::Stop{status};
  ++mapped_failures_;
  return followup::BeginEpoch{std::string(status.message())};
}

Followup Recovery::OnCallFailed(const ps::ErrorDetail& detail, const absl::Status& status) {
  if (phase_ != Phase::kRestoring) return followup::Stop{status};
  if (detail.kind() == ps::ErrorDetail::EPOCH_CHANGED) {
    next_epoch_ = std::max(next_epoch_, detail.epoch());
    return followup::BeginEpoch{std::string(status.message())};
  }
  return RetryWithoutMemory(status);
}

void Recovery::Close() {
  phase_ = Phase::kIdle;
  obstacle_.clear();
}

bool Recovery::TakeOverOrServe() {
  if (has_taken_over_) return true;
  phase_ = Phase::kTakingOver;
  actions_->push_back(coordinator_action::TakeOver{restore_.step()});
  return false;
}

bool Recovery::OnTookOver() {
  has_taken_over_ = true;
  return phase_ == Phase::kTakingOver;
}

void Recovery::BeginServing(absl::string_view newest_checkpoint) {
  phase_ = Phase::kServing;
  next_poll_ = job_.now + options_.shard_poll;
  epoch_pace_.NoteServing(job_.now);
  std::string from =
      absl::StrFormat("epoch %d begins with step %d of epoch %d from %s", job_.epoch, job_.version,
                      restore_.version_epoch(), SourceName(restore_.source()));
  const uint64_t durable_step = checkpoint_.has_value() ? checkpoint_->id.version : 0;
  if (restore_.source() == ps::RestoreRequest::MAPPED && job_.version > durable_step) {
    absl::StrAppend(&from, "; ", newest_checkpoint,
                    checkpoint_.has_value() ? " (--from_checkpoint goes back)" : "");
  }
  if (rolled_back_steps_ > 0) {
    Warn(absl::StrFormat("%s, %d steps back", from, rolled_back_steps_), actions_);
  } else {
    Tell(from, actions_);
  }
  actions_->push_back(
      coordinator_action::Serving{job_.epoch, job_.version, restore_.source(), rolled_back_steps_});
}

Recovery::Failure Recovery::JudgeFailure(uint32_t shard, const absl::Status& status) {
  const ps::ErrorDetail detail = GetErrorDetail(status);
  if (!IsPlausibleEpoch(detail.epoch(), next_epoch_)) {
    Warn(absl::StrFormat("shard %d of %d says that it is in epoch %d, which cannot be in a job "
                         "that is in epoch %d; restart its ps task",
                         shard, options_.tasks, detail.epoch(), next_epoch_),
         actions_);
    return Failure::kRepeat;
  }
  const bool lost_epoch = detail.kind() == ps::ErrorDetail::NOT_READY ||
                          detail.kind() == ps::ErrorDetail::EPOCH_CHANGED;
  if (lost_epoch && phase_ == Phase::kServing) {
    next_epoch_ = std::max(next_epoch_, detail.epoch());
    return Failure::kLostEpoch;
  }
  return MayBeCuredByRepeating(status) ? Failure::kRepeat : Failure::kFinal;
}

absl::Duration Recovery::FinishedRunLimit() const {
  const bool is_finished = phase_ == Phase::kQueryingShards && !options_.from_checkpoint &&
                           checkpoint_.has_value() && checkpoint_->training_done &&
                           job_.length.EndsAt(checkpoint_->id.version);
  return is_finished ? begun_ + options_.lease : absl::InfiniteDuration();
}

bool Recovery::TakePoll() {
  if (phase_ != Phase::kServing || options_.tasks == 1 || job_.now < next_poll_) return false;
  next_poll_ = job_.now + options_.shard_poll;
  return true;
}

Followup Recovery::CheckPolledState(uint32_t shard, const ps::ShardStateReply& state) const {
  if (state.boot_id() == restore_.boot_ids(static_cast<int>(shard)) &&
      state.epoch() == job_.epoch) {
    return followup::None{};
  }
  return followup::BeginEpoch{
      absl::StrFormat("shard %d of %d has restarted", shard, options_.tasks)};
}

std::string Recovery::DescribeWait(absl::string_view who) const {
  switch (phase_) {
    case Phase::kPersistingEpoch:
      return absl::StrFormat("epoch %d to begin", next_epoch_);
    case Phase::kFindingCheckpoint:
      return "the newest checkpoint to be found and verified";
    case Phase::kQueryingShards:
      return absl::StrCat(who, " to say which versions are in memory");
    case Phase::kRestoring:
      return absl::StrFormat("%s to restore step %d from %s", who, restore_.step(),
                             SourceName(restore_.source()));
    case Phase::kTakingOver:
      return "the server to write its files in train_dir";
    case Phase::kIdle:
    case Phase::kServing:
      break;
  }
  return "";
}

absl::Duration Recovery::NextWakeup() const {
  if (phase_ == Phase::kPersistingEpoch) return persist_at_;
  if (phase_ == Phase::kServing && options_.tasks > 1) return next_poll_;
  return FinishedRunLimit();
}

}  // namespace pushpull
