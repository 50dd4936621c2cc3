#include "ps_server/core/coordinator.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"

#include "common/base/passing_error.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"
#include "ps_server/core/protocol_error.h"

namespace pushpull {
namespace {

// UNAVAILABLE: another shard than `shard` has answered, or one of another build or another run. If
// that were not noticed, two addresses in the wrong order would look like tasks that restart again
// and again, and a task of another run like one that has lost its versions.
absl::Status CheckAnswer(uint32_t shard, const std::string& run_id, const ShardReply& reply) {
  const auto* const state = std::get_if<ps::ShardStateReply>(&reply);
  if (state == nullptr) return absl::OkStatus();
  const absl::Status same = CheckProtocolVersion("its ps task", state->protocol_version());
  if (!same.ok()) return absl::UnavailableError(same.message());
  if (!state->job_run_id().empty() && state->job_run_id() != run_id) {
    return absl::UnavailableError(absl::StrFormat(
        "a ps task of run %s, not of run %s, answers at the address of ps task %d: end it if it is "
        "left over from an earlier run, or give each run addresses of its own",
        absl::BytesToHexString(state->job_run_id()), absl::BytesToHexString(run_id), shard));
  }
  if (state->shard() == shard) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrFormat("ps task %d answers at the address of ps task %d: give all tasks the same "
                      "addresses, in the order of their indices",
                      state->shard(), shard));
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options)
    : options_(std::move(options)),
      members_(options_, job_, &actions_),
      scaling_(options_, job_, &members_, &actions_),
      steps_(options_, job_, &members_, &actions_),
      recovery_(options_, job_, &actions_),
      checkpoints_(options_, job_, &actions_),
      calls_(1, 3, options_.first_retry, options_.last_retry),
      snapshots_(2, 3, options_.first_retry, options_.last_retry),
      polls_(3, 3, options_.first_retry, options_.last_retry) {
  job_.length = TrainingLength(options_.limits);
}

CoordinatorActions Coordinator::Handle(const CoordinatorEvent& event, absl::Duration now) {
  actions_.clear();
  job_.now = now;
  RunTimers();
  std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(actions_, {});
}

void Coordinator::RunTimers() {
  if (job_.now >= DrainLimit()) GiveUpDraining();
  recovery_.PersistIfDue();
  if (job_.now >= recovery_.FinishedRunLimit()) FinishWithoutShards();
  for (FanOut* fan_out : {&calls_, &snapshots_, &polls_}) fan_out->Retry(job_.now, &actions_);
  if (!IsServing()) return;
  const std::vector<uint32_t> lost = members_.ExpireLeases();
  if (phase_ == Phase::kTraining) members_.WarnOfLost(lost);  // afterwards clones may leave
  if (phase_ == Phase::kDone) return;
  if (steps_.is_open()) Reassign();
  if (recovery_.TakePoll()) {
    // A shard that does not answer must not keep the others from hearing of the coordinator.
    if (polls_.active()) {
      polls_.CallAnsweredAgain(&actions_);
    } else {
      polls_.Start(shard_call::GetState{}, options_.tasks, job_.now, &actions_);
    }
  }
  if (steps_.is_open()) Obey(checkpoints_.StartIfDue());
  DecideIfReady();
  if (phase_ == Phase::kFinishing) FinishIfSaved();
}

absl::Duration Coordinator::NextWakeup() const {
  absl::Duration next = std::min({calls_.NextWakeup(), snapshots_.NextWakeup(), polls_.NextWakeup(),
                                  DrainLimit(), recovery_.NextWakeup()});
  if (!IsServing()) return next;
  next = std::min(next, members_.NextWakeup());  // after the end too, for the status
  if (phase_ == Phase::kDone) return next;
  if (phase_ == Phase::kFinishing || steps_.is_open()) {
    next = std::min(next, checkpoints_.NextWakeup());
  }
  if (!steps_.is_open()) return next;
  next = std::min(next, steps_.NextWakeup());
  if (job_.draining) next = std::min(next, drain_since_ + options_.drain_patience);
  return next;
}

void Coordinator::On(const coordinator_event::Start& event) {
  recovery_.Start(event.stored_epoch);
  BeginEpoch("start");
}

void Coordinator::On(const coordinator_event::TookOver& event) {
  if (!event.status.ok()) {
    Stop(event.status);
  } else if (recovery_.OnTookOver()) {
    BeginServing();
  }
}

void Coordinator::On(const coordinator_event::ReplicasPersisted& event) {
  if (!scaling_.OnPersisted(event)) return;
  members_.NoteScaled();
  const bool now = steps_.is_open() && WaitsForAbsent();
  const uint64_t from_step = NextDivisibleStep();
  Tell(absl::StrFormat("an administrator has scaled the job from %d to %d replicas: the batch of "
                       "step %d is the first that is divided over the new number of replicas",
                       members_.num_replicas(), event.num_replicas, from_step),
       &actions_);
  scaling_.Answer(from_step);
  job_.next_step_is_redivided = true;
  if (!now) return;
  steps_.Reopen();
  Divide();
  members_.ReturnHome(steps_.step());
  Reassign();
}

void Coordinator::On(const coordinator_event::ShardReplied& event) {
  FanOut* fan_out = nullptr;
  std::optional<uint32_t> shard;
  for (FanOut* candidate : {&calls_, &snapshots_, &polls_}) {
    shard = candidate->ShardOf(event.rpc);
    if (!shard.has_value()) continue;
    fan_out = candidate;
    break;
  }
  if (fan_out == nullptr) return;  // the answer is no longer awaited
  absl::Status failure = event.reply.status();
  if (failure.ok()) failure = CheckAnswer(*shard, options_.run_id, *event.reply);
  if (!failure.ok()) return OnShardFailure(fan_out, *shard, failure);
  fan_out->SetReply(*shard, *event.reply);
  if (fan_out == &polls_) {
    Obey(recovery_.CheckPolledState(*shard, std::get<ps::ShardStateReply>(*event.reply)));
  }
  if (!fan_out->AllReplied()) return;
  if (fan_out == &polls_) {
    polls_.Stop();
  } else if (fan_out == &snapshots_) {
    checkpoints_.OnReplies(snapshots_.replies(), members_.Devices());
    snapshots_.Stop();
  } else if (recovery_.is_recovering()) {
    Obey(recovery_.OnReplies(calls_.replies()));
  } else {
    Obey(steps_.OnReplies(calls_.replies()));
  }
}

void Coordinator::OnShardFailure(FanOut* fan_out, uint32_t shard, const absl::Status& status) {
  const Recovery::Failure failure = recovery_.JudgeFailure(shard, status);
  if (failure == Recovery::Failure::kLostEpoch) {
    return BeginEpoch(absl::StrFormat("shard %d does not know it: %s", shard, status.message()));
  }
  if (failure == Recovery::Failure::kRepeat || fan_out == &polls_) {
    return fan_out->SetFailed(shard, status, job_.now);
  }
  const absl::Status reason = Annotated(
      status, absl::StrFormat("shard %d of %d: %s", shard, options_.tasks, status.message()));
  if (fan_out == &snapshots_) {
    snapshots_.Stop();
    const bool gone = GetErrorDetail(status).kind() == ps::ErrorDetail::VERSION_GONE;
    Obey(checkpoints_.OnCallFailed(reason, gone));
    if (steps_.is_open()) Obey(checkpoints_.StartIfDue());
  } else if (recovery_.is_recovering()) {
    Obey(recovery_.OnCallFailed(GetErrorDetail(status), reason));
  } else {
    Obey(steps_.OnCallFailed(reason));
  }
}

void Coordinator::Obey(const Followup& followup) {
  std::visit([this](const auto& f) { Do(f); }, followup);
}

void Coordinator::Do(const followup::CheckpointFound& followup) {
  checkpoints_.SetNewest(followup.checkpoint);
  if (followup.checkpoint.has_value()) TakeNumImages(followup.checkpoint->num_images);
  calls_.Start(shard_call::GetState{}, options_.tasks, job_.now, &actions_);
}

void Coordinator::Do(const followup::CallShards& followup) {
  if (job_.draining && recovery_.restores_from_disk()) return EndDrained();
  const bool is_snapshot = std::holds_alternative<shard_call::Snapshot>(followup.call);
  FanOut& fan_out = is_snapshot ? snapshots_ : calls_;
  fan_out.Start(followup.call, options_.tasks, job_.now, &actions_);
}

void Coordinator::Do(const followup::Restored& followup) {
  const uint32_t num_replicas = steps_.RestorePositions(followup.marks, followup.version);
  calls_.Stop();
  if (const absl::Status kept = members_.KeepNumReplicas(num_replicas); !kept.ok()) {
    return Stop(kept);
  }
  if (recovery_.TakeOverOrServe()) BeginServing();
}

void Coordinator::Do(const followup::Applied& followup) {
  calls_.Stop();
  job_.version = followup.step;
  scaling_.NoteApplied(steps_.commits());
  Obey(steps_.NoteApplied());
  if (phase_ != Phase::kStopped) GoOn();
}

void Coordinator::Do(const followup::Published&) {
  if (steps_.is_open()) Obey(checkpoints_.StartIfDue());
  if (phase_ == Phase::kFinishing) FinishIfSaved();
}

void Coordinator::Do(const followup::FinalCheckpointFailed& followup) {
  if (!job_.draining) return Stop(followup.reason);
  Warn(absl::StrFormat("%s; the server ends without a checkpoint of step %d; %s",
                       followup.reason.message(), job_.version, checkpoints_.DescribeNewest()),
       &actions_);
  EndDrained();
}

void Coordinator::Do(const followup::Stop& followup) {
  Stop(followup.reason);
  if (followup.call != 0) {
    actions_.push_back(coordinator_action::ReplyCommit{followup.call, StoppedError()});
  }
}

void Coordinator::BeginEpoch(const std::string& why) {
  if (const absl::Status status = recovery_.BeginEpoch(why); !status.ok()) return Stop(status);
  phase_ = Phase::kRecovering;
  steps_.Close();
  StopCalls();
  AbandonCheckpoint();
  const uint64_t epoch = recovery_.next_epoch();
  steps_.AnswerPushes(ProtocolError(ps::ErrorDetail::EPOCH_CHANGED, epoch, job_.version,
                                    "the server begins a new epoch: register again"));
  checkpoints_.Refuse(UINT64_MAX, ProtocolError(ps::ErrorDetail::NOT_READY, epoch, job_.version,
                                                "the server begins a new epoch: ask again"));
  recovery_.PersistIfDue();
}

void Coordinator::BeginServing() {
  job_.version = recovery_.restored_version();
  members_.BeginEpoch();
  steps_.BeginEpoch();
  checkpoints_.BeginEpoch();
  has_served_ = true;
  recovery_.BeginServing(checkpoints_.DescribeNewest());
  GoOn();
}

void Coordinator::GoOn() {
  if (job_.length.EndsAt(job_.version)) return Finish(absl::OkStatus());
  phase_ = Phase::kTraining;
  Obey(checkpoints_.StartIfDue());
  steps_.Open();
  Divide();
  members_.ReturnHome(steps_.step());
  Reassign();
  DecideIfReady();
}

void Coordinator::Divide() {
  if (scaling_.IsDue()) {
    members_.Divide(scaling_.TakeDue(), steps_.step());
    steps_.ForgetLagging();
  }
  scaling_.Plan();
  job_.next_step_is_redivided = scaling_.IsDue();
}

bool Coordinator::WaitsForAbsent() const {
  if (members_.num_replicas() == 0) return true;
  const std::vector<uint32_t> missing = steps_.Missing();
  return !std::all_of(missing.begin(), missing.end(),
                      [this](uint32_t replica) { return members_.HasLiveOwner(replica); });
}

uint64_t Coordinator::NextDivisibleStep() const {
  if (steps_.is_open() && WaitsForAbsent()) return steps_.step();
  return std::max(job_.version + 1, steps_.step() + (IsServing() ? 1 : 0));
}

void Coordinator::TakeNumImages(uint64_t num_images) {
  if (!job_.length.TakeNumImages(num_images)) return;
  Tell(absl::StrFormat("the training data have %d images, so the last step is %d", num_images,
                       job_.length.last_step()),
       &actions_);
  // The version that was restored may be the last one already, or a later one.
  if (steps_.is_open() && job_.length.EndsAt(job_.version)) Finish(absl::OkStatus());
}

void Coordinator::DecideIfReady() {
  if (!steps_.is_open()) return;
  if (job_.draining && steps_.IsGivenUpBy(drain_since_)) {
    Finish(Error(ps::ErrorDetail::DRAINING, "the server ends"));
  } else {
    Obey(steps_.DecideIfReady());
  }
}

void Coordinator::Reassign() {
  members_.Reassign(steps_.step(),
                    [this](uint32_t replica) { return steps_.HasContribution(replica); });
}

void Coordinator::Finish(const absl::Status& answer_to_pushes) {
  phase_ = Phase::kFinishing;
  finish_since_ = job_.now;
  steps_.Close();
  checkpoints_.BeginFinal();
  steps_.AnswerPushes(answer_to_pushes);
  FinishIfSaved();
}

void Coordinator::FinishIfSaved() {
  Obey(checkpoints_.StartFinalIfDue());
  if (!checkpoints_.IsSaved()) return;
  if (!job_.length.EndsAt(job_.version)) return EndDrained();
  EndFinished();
}

void Coordinator::RefuseAdministrators(uint64_t up_to_step, const absl::Status& status) {
  checkpoints_.Refuse(up_to_step, status);
  scaling_.Refuse(status);
}

void Coordinator::EndFinished() {
  phase_ = Phase::kDone;
  scaling_.Refuse(absl::FailedPreconditionError("training is done, so no step follows"));
  recovery_.Close();
  StopCalls();
  actions_.push_back(coordinator_action::Finished{});
}

void Coordinator::FinishWithoutShards() {
  Warn(absl::StrFormat(
           "not every ps task answers, but the checkpoint of step %d is the end of this run: the "
           "other tasks have probably ended with it, and this one ends too",
           durable_step()),
       &actions_);
  job_.version = durable_step();
  EndFinished();
}

void Coordinator::AbandonCheckpoint() {
  snapshots_.Stop();
  checkpoints_.Abandon();
}

void Coordinator::StopCalls() {
  calls_.Stop();
  polls_.Stop();
}

void Coordinator::Stop(const absl::Status& reason) {
  if (phase_ == Phase::kStopped) return;
  phase_ = Phase::kStopped;
  stop_reason_ = reason;
  steps_.Close();
  recovery_.Close();
  StopCalls();
  AbandonCheckpoint();
  steps_.AnswerPushes(StoppedError());
  RefuseAdministrators(UINT64_MAX, CheckAdministrator());
  actions_.push_back(coordinator_action::Stopped{reason});
}

}  // namespace pushpull
