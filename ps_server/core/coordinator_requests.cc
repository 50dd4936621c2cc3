// How the Coordinator handles the requests of clones and administrators, and what it reports.
// Tested by tests/ps_server/core/coordinator_test.cc.
// Tested by tests/ps_server/core/coordinator_async_test.cc.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "ps_server/core/coordinator.h"
#include "ps_server/core/protocol_error.h"
#include "ps_server/core/stop_reason.h"

namespace pushpull {
namespace {

// A shorter wait is not reported.
constexpr absl::Duration kWorthTelling = absl::Seconds(2);

}  // namespace

bool Coordinator::IsServing() const {
  return phase_ == Phase::kTraining || phase_ == Phase::kFinishing || phase_ == Phase::kDone;
}

absl::Status Coordinator::Error(ps::ErrorDetail::Kind kind, absl::string_view message) const {
  return ProtocolError(kind, job_.epoch, job_.version, message);
}

absl::Status Coordinator::StoppedError() const {
  if (AnotherServerGoesOn(stop_reason_)) {
    return Error(ps::ErrorDetail::DRAINING,
                 absl::StrFormat("this server ends: %s", stop_reason_.message()));
  }
  return Error(ps::ErrorDetail::STOPPED,
               absl::StrFormat("training was stopped: %s", stop_reason_.message()));
}

absl::Status Coordinator::CheckRequest(const std::string& run_id, uint64_t epoch) const {
  if (!stop_reason_.ok()) return StoppedError();
  if (run_id != options_.run_id) {
    return ProtocolError(ps::ErrorDetail::WRONG_RUN, 0, 0,
                         "this server trains another job (run_id differs): check the address, or "
                         "restart the worker if the job was started anew");
  }
  if (phase_ == Phase::kDrained || (phase_ == Phase::kFinishing && job_.draining)) {
    return Error(ps::ErrorDetail::DRAINING, "the server ends");
  }
  if (epoch < job_.epoch) {
    return Error(ps::ErrorDetail::EPOCH_CHANGED,
                 absl::StrFormat("epoch %d is over, the present epoch is %d: register again", epoch,
                                 job_.epoch));
  }
  if (!IsServing() || epoch > job_.epoch) {
    const std::string waiting = WaitingFor(job_.now);
    return Error(ps::ErrorDetail::NOT_READY,
                 absl::StrCat("the server is starting",
                              waiting.empty() ? "" : absl::StrCat("; it waits for ", waiting)));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::CheckAdministrator() const {
  if (!stop_reason_.ok()) {
    return Error(ps::ErrorDetail::STOPPED,
                 absl::StrFormat("training was stopped: %s", stop_reason_.message()));
  }
  if (phase_ == Phase::kDrained) return Error(ps::ErrorDetail::DRAINING, "the server ends");
  if (!IsServing()) {
    return Error(ps::ErrorDetail::NOT_READY, "the server is starting: ask again");
  }
  return absl::OkStatus();
}

void Coordinator::On(const coordinator_event::Register& event) {
  actions_.push_back(coordinator_action::ReplyRegister{event.call, HandleRegister(event.request)});
}

absl::StatusOr<ps::RegisterReply> Coordinator::HandleRegister(const ps::RegisterRequest& request) {
  PP_RETURN_IF_ERROR(CheckRequest(request.run_id(), job_.epoch));
  if (job_.draining && !training_done()) {
    return Error(ps::ErrorDetail::DRAINING, "the server ends");
  }
  const uint32_t worker = request.worker_id();
  PP_RETURN_IF_ERROR(members_.CheckNotEvicted(worker));
  PP_RETURN_IF_ERROR(members_.CheckAnnouncement(request));
  // A new grant fences the clone's earlier pushes, so those must be applied or refused first.
  const auto is_own = [&](uint32_t replica) { return members_.IsReplicaOf(replica, worker); };
  const std::optional<uint32_t> applied = steps_.ReplicaBeingApplied();
  if (applied.has_value() && is_own(*applied)) {
    return Error(ps::ErrorDetail::NOT_READY, "this clone's last push is being applied");
  }
  steps_.RefusePushes(is_own, Error(ps::ErrorDetail::FENCED, "the clone has registered again"));
  members_.Register(request, [this](uint32_t replica) { return steps_.HasContribution(replica); });
  TakeNumImages(request.num_images());
  if (steps_.is_open()) Reassign();
  ps::RegisterReply reply;
  reply.set_epoch(job_.epoch);
  reply.set_version(job_.version);
  reply.set_num_replicas(members_.num_replicas());
  for (ps::ReplicaGrant& grant : GrantsOf(worker)) *reply.add_grants() = std::move(grant);
  reply.set_lease_milliseconds(absl::ToInt64Milliseconds(options_.lease));
  reply.set_training_done(training_done());
  reply.set_num_steps(last_step());
  return reply;
}

std::vector<ps::ReplicaGrant> Coordinator::GrantsOf(uint32_t worker) const {
  std::vector<ps::ReplicaGrant> grants = members_.GrantsOf(worker);
  if (options_.sync) return grants;
  for (ps::ReplicaGrant& grant : grants) grant.set_position(steps_.NextPosition(grant.replica()));
  return grants;
}

void Coordinator::On(const coordinator_event::Heartbeat& event) {
  actions_.push_back(
      coordinator_action::ReplyHeartbeat{event.call, HandleHeartbeat(event.request)});
}

absl::StatusOr<ps::HeartbeatReply> Coordinator::HandleHeartbeat(
    const ps::HeartbeatRequest& request) {
  ps::HeartbeatReply reply;
  reply.set_epoch(job_.epoch);
  reply.set_version(job_.version);
  reply.set_server_nanoseconds(absl::ToInt64Nanoseconds(job_.now));
  if (AnotherServerGoesOn(stop_reason_)) return StoppedError();
  if (!stop_reason_.ok()) {
    reply.set_stopped(ValidUtf8(stop_reason_.message()));
    return reply;
  }
  PP_RETURN_IF_ERROR(CheckRequest(request.run_id(), request.epoch()));
  PP_RETURN_IF_ERROR(members_.Heartbeat(request));
  if (steps_.is_open()) Reassign();
  for (ps::ReplicaGrant& grant : GrantsOf(request.worker_id())) {
    *reply.add_grants() = std::move(grant);
  }
  reply.set_training_done(training_done());
  reply.set_num_replicas(members_.num_replicas());
  reply.set_waiting_for(ValidUtf8(WaitingFor(job_.now)));
  return reply;
}

absl::Status Coordinator::CheckCommit(const ps::CommitRequest& request) const {
  PP_RETURN_IF_ERROR(CheckRequest(request.key().run_id(), request.key().epoch()));
  PP_RETURN_IF_ERROR(members_.CheckNotEvicted(request.key().worker_id()));
  return steps_.CheckCommit(request);
}

void Coordinator::On(const coordinator_event::Commit& event) {
  absl::Status status = CheckCommit(event.request);
  if (status.ok()) status = members_.Renew(event.request.key().worker_id());
  if (!status.ok()) {
    actions_.push_back(coordinator_action::ReplyCommit{event.call, status});
    return;
  }
  Obey(steps_.Commit(event.call, event.request));
  DecideIfReady();
}

void Coordinator::On(const coordinator_event::Cancel& event) {
  steps_.Cancel(event.call);
  checkpoints_.Cancel(event.call);
}

void Coordinator::On(const coordinator_event::Checkpoint& event) {
  absl::Status refusal = CheckAdministrator();
  if (refusal.ok() && job_.version == 0) {
    refusal = absl::FailedPreconditionError(
        "no step has been applied yet: there is nothing to put into a checkpoint");
  }
  if (!refusal.ok()) {
    actions_.push_back(coordinator_action::ReplyCheckpoint{event.call, refusal});
    return;
  }
  checkpoints_.Ask(event.call);
  if (steps_.is_open()) Obey(checkpoints_.StartIfDue());
}

void Coordinator::On(const coordinator_event::Evict& event) {
  actions_.push_back(coordinator_action::ReplyEvict{event.call, HandleEvict(event.request)});
}

absl::StatusOr<ps::EvictReply> Coordinator::HandleEvict(const ps::EvictRequest& request) {
  PP_RETURN_IF_ERROR(CheckAdministrator());
  PP_RETURN_IF_ERROR(members_.CheckEvict(request));
  const uint32_t worker = request.worker_id();
  if (members_.IsEvicted(worker)) return ps::EvictReply();
  ps::EvictReply reply = members_.Evict(request);
  steps_.RefusePushes([&](uint32_t replica) { return members_.IsReplicaOf(replica, worker); },
                      members_.CheckNotEvicted(worker));
  if (steps_.is_open()) Reassign();
  return reply;
}

void Coordinator::On(const coordinator_event::Scale& event) {
  if (const absl::Status refusal = CheckAdministrator(); !refusal.ok()) {
    actions_.push_back(coordinator_action::ReplyScale{event.call, refusal});
    return;
  }
  scaling_.Ask(event.call, event.request, NextDivisibleStep());
}

void Coordinator::On(const coordinator_event::Drain& event) {
  if (event.call != 0) {
    if (!stop_reason_.ok()) {
      actions_.push_back(coordinator_action::ReplyDrain{event.call, CheckAdministrator()});
      return;
    }
    ps::DrainReply reply;
    reply.set_version(job_.version);
    actions_.push_back(coordinator_action::ReplyDrain{event.call, std::move(reply)});
    if (!job_.draining) Tell("an administrator has told this server to end", &actions_);
    actions_.push_back(coordinator_action::EndWanted{});
  }
  if (job_.draining || phase_ == Phase::kStopped || phase_ == Phase::kDone) return;
  job_.draining = true;
  drain_since_ = job_.now;
  // A process that has not served yet has nothing to save, nor has one whose shards restore what is
  // on the disk. Another one goes on recovering: when it serves again it saves the version, unless
  // the limit of the drain ends it before.
  if (!IsServing() && (!has_served_ || recovery_.restores_from_disk())) return EndDrained();
  if (phase_ == Phase::kFinishing) {
    checkpoints_.BeginFinal();  // it may have been in a long pause, for a disk that is full
    return FinishIfSaved();
  }
  DecideIfReady();
}

void Coordinator::EndDrained() {
  phase_ = Phase::kDrained;
  steps_.Close();
  recovery_.Close();
  StopCalls();
  scaling_.Refuse(CheckAdministrator());
  actions_.push_back(coordinator_action::Drained{});
}

absl::Duration Coordinator::DrainLimit() const {
  const bool ended =
      phase_ == Phase::kDone || phase_ == Phase::kDrained || phase_ == Phase::kStopped;
  return job_.draining && !ended ? drain_since_ + options_.drain_limit : absl::InfiniteDuration();
}

void Coordinator::GiveUpDraining() {
  const std::string waiting = WaitingFor(job_.now);
  Warn(absl::StrFormat(
           "the drain has taken %s: the server ends without a checkpoint of step %d; %s%s",
           absl::FormatDuration(options_.drain_limit), job_.version, checkpoints_.DescribeNewest(),
           waiting.empty() ? "" : absl::StrCat("; it waited for ", waiting)),
       &actions_);
  AbandonCheckpoint();
  const absl::Status ends = Error(ps::ErrorDetail::DRAINING, "the server ends");
  RefuseAdministrators(job_.version, ends);
  steps_.AnswerPushes(ends);
  EndDrained();
}

Coordinator::Late Coordinator::FindLate(absl::Duration now) const {
  Late late;
  if (!steps_.is_open() || (!options_.sync && members_.AnyAlive())) return late;
  const absl::Duration usual = steps_.UsualTime();
  for (const uint32_t replica : steps_.Missing()) {
    absl::Duration due = steps_.opened();
    if (members_.HasLiveOwner(replica)) {
      const bool is_unusual = now - steps_.opened() >= 2 * usual;
      due = steps_.commits().FirstCommitOfOthers(members_.WorkerOf(replica));
      if (is_unusual) due = std::min(due, steps_.opened() + usual);
    }
    if (now - due < kWorthTelling) continue;
    late.replicas.push_back(replica);
    late.since = std::min(late.since, due);
  }
  return late;
}

std::string Coordinator::DescribeMissing(const FanOut& fan_out) const {
  const uint32_t shard = fan_out.FirstMissing().value_or(0);
  const absl::Status& failure = fan_out.failure(shard);
  return absl::StrFormat("shard %d of %d%s", shard, options_.tasks,
                         failure.ok() ? "" : absl::StrCat(" (", failure.message(), ")"));
}

Coordinator::Wait Coordinator::FindWait(absl::Duration now) const {
  if (!recovery_.obstacle().empty()) {
    return {absl::StrCat("an error to pass: ", recovery_.obstacle()), recovery_.obstacle_since()};
  }
  const auto is_long = [now](absl::Duration since) { return now - since >= kWorthTelling; };
  if (recovery_.is_recovering()) {  // worth telling at once: the version is not the job's yet
    if (!calls_.active() || !is_long(calls_.started())) {
      return {recovery_.DescribeWait("the shards"), recovery_.begun()};
    }
    return {recovery_.DescribeWait(DescribeMissing(calls_)), calls_.started()};
  }
  // A shard that answers no poll keeps the clones from completing the step, so it is named before
  // them.
  for (const FanOut* const fan_out : {&calls_, &polls_}) {
    if (fan_out->active() && is_long(fan_out->started())) {
      return {DescribeMissing(*fan_out), fan_out->started()};
    }
  }
  if (phase_ == Phase::kFinishing && is_long(finish_since_)) {
    std::string what = absl::StrFormat("the checkpoint of step %d", job_.version);
    if (snapshots_.active()) absl::StrAppend(&what, " by ", DescribeMissing(snapshots_));
    return {std::move(what), finish_since_};
  }
  if (!steps_.is_open() || !is_long(steps_.opened())) return {};
  if (members_.num_replicas() == 0) return {"the first clone", steps_.opened()};
  const Late late = FindLate(now);
  return {members_.DescribeLate(late.replicas), late.since};
}

double Coordinator::WaitingSeconds(absl::Duration now) const {
  const Wait wait = FindWait(now);
  return wait.what.empty() ? 0.0 : absl::ToDoubleSeconds(now - wait.since);
}

ps::StatusReply Coordinator::Status(absl::Duration now) const {
  ps::StatusReply status;
  status.set_run_id(options_.run_id);
  status.set_epoch(job_.epoch);
  status.set_version(job_.version);
  status.set_num_steps(last_step());
  status.set_sync(options_.sync);
  status.set_training_done(training_done());
  status.set_waiting_for(ValidUtf8(WaitingFor(now)));
  status.set_waiting_seconds(WaitingSeconds(now));
  status.set_rolled_back_steps(recovery_.rolled_back_steps());
  if (!stop_reason_.ok()) status.set_stopped(ValidUtf8(stop_reason_.message()));
  steps_.AddTo(&status);
  checkpoints_.AddTo(&status, now);
  members_.AddTo(&status, FindLate(now).replicas, now);
  return status;
}

}  // namespace pushpull
