// How the Coordinator handles the calls of operators.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "ps_server/core/coordinator.h"
#include "ps_server/core/protocol_error.h"

namespace pushpull {
namespace {

// Every refusal of the evicted clone carries the reason, so it must stay short.
constexpr size_t kMaxReasonBytes = 500;

}  // namespace

absl::Status Coordinator::CheckOperator() const {
  if (!stop_reason_.ok()) {
    return ProtocolError(ps::ErrorDetail::STOPPED, serving_epoch_, version_,
                         absl::StrFormat("training was stopped: %s", stop_reason_.message()));
  }
  if (phase_ == Phase::kDrained) {
    return ProtocolError(ps::ErrorDetail::DRAINING, serving_epoch_, version_, "the server ends");
  }
  if (!IsServing()) {
    return ProtocolError(ps::ErrorDetail::NOT_READY, serving_epoch_, version_,
                         "the server is starting: ask again");
  }
  return absl::OkStatus();
}

void Coordinator::On(const coordinator_event::Checkpoint& event) {
  absl::Status refusal = CheckOperator();
  if (refusal.ok() && version_ == 0) {
    refusal = absl::FailedPreconditionError(
        "no step has been applied yet: there is nothing to put into a checkpoint");
  }
  if (!refusal.ok()) {
    actions_.push_back(coordinator_action::ReplyCheckpoint{event.call, refusal});
    return;
  }
  checkpoint_calls_.push_back({event.call, version_});
  AnswerCheckpoints();  // the newest checkpoint may satisfy the call already
  if (phase_ == Phase::kOpen) StartCheckpointIfDue();
}

void Coordinator::AnswerCheckpoints() {
  std::erase_if(checkpoint_calls_, [this](const CheckpointCall& call) {
    if (call.version > durable_step_) return false;
    ps::CheckpointReply reply;
    reply.set_step(durable_step_);
    actions_.push_back(coordinator_action::ReplyCheckpoint{call.call, std::move(reply)});
    return true;
  });
}

void Coordinator::RefuseCheckpoints(uint64_t up_to_step, const absl::Status& status) {
  std::erase_if(checkpoint_calls_, [&](const CheckpointCall& call) {
    if (call.version > up_to_step) return false;
    actions_.push_back(coordinator_action::ReplyCheckpoint{call.call, status});
    return true;
  });
}

void Coordinator::On(const coordinator_event::Drain& event) {
  if (event.call != 0) {
    if (!stop_reason_.ok()) {
      actions_.push_back(coordinator_action::ReplyDrain{event.call, CheckOperator()});
      return;
    }
    ps::DrainReply reply;
    reply.set_version(version_);
    actions_.push_back(coordinator_action::ReplyDrain{event.call, std::move(reply)});
    if (!draining_) Tell("an operator has told this server to end");
    actions_.push_back(coordinator_action::EndWanted{});
  }
  if (draining_ || phase_ == Phase::kStopped || phase_ == Phase::kDone) return;
  draining_ = true;
  drain_since_ = now_;
  if (!IsServing()) {
    phase_ = Phase::kDrained;
    calls_.Stop();
    actions_.push_back(coordinator_action::Drained{});
    return;
  }
  DecideIfReady();
}

absl::Duration Coordinator::DrainLimit() const {
  const bool ended =
      phase_ == Phase::kDone || phase_ == Phase::kDrained || phase_ == Phase::kStopped;
  return draining_ && !ended ? drain_since_ + options_.drain_limit : absl::InfiniteDuration();
}

void Coordinator::GiveUpDraining() {
  const std::string waiting = WaitingFor(now_);
  Warn(absl::StrFormat(
      "the drain has taken %s: the server ends without a checkpoint of step %d, the newest is of "
      "step %d%s",
      absl::FormatDuration(options_.drain_limit), version_, durable_step_,
      waiting.empty() ? "" : absl::StrCat("; it waited for ", waiting)));
  phase_ = Phase::kDrained;
  calls_.Stop();
  polls_.Stop();
  AbandonCheckpoint();
  const absl::Status ends =
      ProtocolError(ps::ErrorDetail::DRAINING, serving_epoch_, version_, "the server ends");
  RefuseCheckpoints(version_, ends);
  AnswerPendingPushes(ends);
  actions_.push_back(coordinator_action::Drained{});
}

absl::Status Coordinator::CheckNotEvicted(uint32_t worker_id) const {
  if (!rules_.check_eviction || !replicas_.IsEvicted(worker_id)) return absl::OkStatus();
  return EvictedError(worker_id);
}

absl::Status Coordinator::EvictedError(uint32_t worker_id) const {
  const std::string& reason = *replicas_.Find(worker_id)->evicted;
  return ProtocolError(ps::ErrorDetail::EVICTED, serving_epoch_, version_,
                       absl::StrFormat("%s was evicted by an operator%s%s", CloneName(worker_id),
                                       reason.empty() ? "" : ": ", reason));
}

void Coordinator::On(const coordinator_event::Evict& event) {
  const uint32_t worker = event.request.worker_id();
  absl::Status refusal = CheckOperator();
  if (refusal.ok() && worker >= replicas_.num_replicas() && replicas_.Find(worker) == nullptr) {
    refusal = absl::NotFoundError(
        replicas_.num_replicas() == 0
            ? absl::StrFormat("there is no clone %d: none has registered yet", worker)
            : absl::StrFormat("there is no clone %d: this job's are 0 to %d", worker,
                              replicas_.num_replicas() - 1));
  }
  if (refusal.ok() && event.request.reason().size() > kMaxReasonBytes) {
    refusal = absl::InvalidArgumentError(
        absl::StrFormat("the reason to evict clone %d has %d bytes, expected at most %d", worker,
                        event.request.reason().size(), kMaxReasonBytes));
  }
  if (!refusal.ok()) {
    actions_.push_back(coordinator_action::ReplyEvict{event.call, refusal});
    return;
  }
  ps::EvictReply reply;
  if (!replicas_.IsEvicted(worker)) EvictNow(worker, event.request.reason(), &reply);
  actions_.push_back(coordinator_action::ReplyEvict{event.call, std::move(reply)});
}

void Coordinator::EvictNow(uint32_t worker, std::string reason, ps::EvictReply* reply) {
  for (char& c : reason) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(c))) c = ' ';  // logged on one line
  }
  const std::vector<uint32_t> taken = replicas_.Evict(worker, reason);
  reply->mutable_replicas()->Assign(taken.begin(), taken.end());
  const absl::Status evicted = EvictedError(worker);
  std::string text(evicted.message());
  if (!taken.empty()) absl::StrAppend(&text, "; it had replica ", absl::StrJoin(taken, ", "));
  if (!replicas_.AnyAlive()) absl::StrAppend(&text, "; no clone is left to go on");
  Warn(std::move(text));
  RefusePushes([&](uint32_t replica) { return IsReplicaOf(replica, worker); }, evicted);
  if (phase_ == Phase::kOpen) ReassignReplicas();
}

bool Coordinator::IsReplicaOf(uint32_t replica, uint32_t worker) const {
  return replica == worker || replicas_.replica(replica).owner == worker;
}

void Coordinator::RefusePushes(absl::FunctionRef<bool(uint32_t)> of, const absl::Status& status) {
  if (pushes_.empty()) return;
  // While a step is decided, the front push may be on its way into the variables.
  const bool deciding = IsDeciding();
  const auto refused = [&](const PendingPush& push) {
    if (!of(push.request.key().replica())) return false;
    for (const CallId call : push.calls) {
      actions_.push_back(coordinator_action::ReplyCommit{call, status});
    }
    return true;
  };
  pushes_.erase(std::remove_if(pushes_.begin() + (deciding ? 1 : 0), pushes_.end(), refused),
                pushes_.end());
}

}  // namespace pushpull
