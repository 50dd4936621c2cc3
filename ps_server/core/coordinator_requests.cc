// How the Coordinator handles the calls of workers.
// Tested by tests/ps_server/core/coordinator_test.cc.
// Tested by tests/ps_server/core/coordinator_async_test.cc.
#include <utility>

#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "common/wire/protocol_version.h"
#include "ps_server/core/coordinator.h"
#include "ps_server/core/protocol_error.h"

namespace pushpull {
namespace {

// Far above any batch size. Keeps sums of samples exact in a double.
constexpr uint64_t kMaxSamples = uint64_t{1} << 32;

}  // namespace

bool Coordinator::IsServing() const {
  return phase_ == Phase::kOpen || IsDeciding() || phase_ == Phase::kFinishing ||
         phase_ == Phase::kDone;
}

absl::Status Coordinator::StoppedError() const {
  if (absl::IsAborted(stop_reason_)) {
    return ProtocolError(ps::ErrorDetail::DRAINING, serving_epoch_, version_,
                         absl::StrFormat("this server ends: %s", stop_reason_.message()));
  }
  return ProtocolError(ps::ErrorDetail::STOPPED, serving_epoch_, version_,
                       absl::StrFormat("training was stopped: %s", stop_reason_.message()));
}

absl::Status Coordinator::CheckRequest(const std::string& run_id, uint64_t epoch) const {
  if (!stop_reason_.ok()) return StoppedError();
  if (run_id != options_.run_id) {
    return ProtocolError(ps::ErrorDetail::WRONG_RUN, 0, 0,
                         "this server trains another job (run_id differs): check the address, or "
                         "restart the worker if the job was started anew");
  }
  if (phase_ == Phase::kDrained || (phase_ == Phase::kFinishing && draining_)) {
    return ProtocolError(ps::ErrorDetail::DRAINING, serving_epoch_, version_, "the server ends");
  }
  if (rules_.check_epoch && epoch < serving_epoch_) {
    return ProtocolError(
        ps::ErrorDetail::EPOCH_CHANGED, serving_epoch_, version_,
        absl::StrFormat("epoch %d is over, now is %d: register again", epoch, serving_epoch_));
  }
  if (!IsServing() || epoch > serving_epoch_) {
    return ProtocolError(ps::ErrorDetail::NOT_READY, serving_epoch_, version_,
                         "the server is starting");
  }
  return absl::OkStatus();
}

void Coordinator::On(const coordinator_event::Register& event) {
  actions_.push_back(coordinator_action::ReplyRegister{event.call, HandleRegister(event.request)});
}

absl::Status Coordinator::CheckAnnouncement(const ps::RegisterRequest& request) {
  const std::string who =
      absl::StrFormat("worker %d (%s)", request.worker_id(), request.peer_name());
  if (request.protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s speaks protocol version %d, the server %d: install the same release",
                        who, request.protocol_version(), kProtocolVersion));
  }
  if (request.layout_signature() != options_.layout_signature) {
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::LAYOUT_MISMATCH);
    const std::string difference = DescribeVariableDifference(
        options_.variables, {request.variables().begin(), request.variables().end()},
        detail.mutable_variable());
    return MakeError(detail,
                     absl::StrFormat("%s has another model than the server: %s", who,
                                     difference.empty() ? "the signatures differ" : difference));
  }
  if (request.num_replicas() == 0 || request.num_replicas() > kMaxReplicas) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s announces %d clones over all workers, expected 1 to %d", who,
                        request.num_replicas(), kMaxReplicas));
  }
  replicas_.SetNumReplicas(request.num_replicas());
  if (request.num_replicas() != replicas_.num_replicas()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s announces %d clones over all workers (num_clones x num_workers), but this job has %d; "
        "their number is fixed for a run",
        who, request.num_replicas(), replicas_.num_replicas()));
  }
  if (!options_.sync && request.worker_id() >= replicas_.num_replicas()) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: worker ids of this job are below %d", who, replicas_.num_replicas()));
  }
  const Clone* other = replicas_.Find(request.worker_id());
  const bool same_clone = other != nullptr && other->session == request.session();
  if (same_clone && request.process_number() < other->process_number) {
    // The error has no ErrorDetail, so the process ends instead of registering again.
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s is process %d of this clone, but its supervisor has started process %d (%s) since", who,
        request.process_number(), other->process_number, other->peer_name));
  }
  if (rules_.check_session && other != nullptr && other->alive && !same_clone) {
    return absl::AlreadyExistsError(absl::StrFormat(
        "%s: worker %d is %s, last heard from %.1f s ago; give each worker its own index, or wait "
        "%s if that one has ended",
        who, request.worker_id(), other->peer_name, absl::ToDoubleSeconds(now_ - other->last_seen),
        absl::FormatDuration(other->last_seen + options_.lease - now_)));
  }
  if (!replicas_.HasRoomFor(request.worker_id())) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: there are %d clones without a replica already", who, ReplicaTable::kMaxSpares));
  }
  return absl::OkStatus();
}

absl::StatusOr<ps::RegisterReply> Coordinator::HandleRegister(const ps::RegisterRequest& request) {
  PP_RETURN_IF_ERROR(CheckRequest(request.run_id(), serving_epoch_));
  if (draining_ && !training_done()) {
    return ProtocolError(ps::ErrorDetail::DRAINING, serving_epoch_, version_, "the server ends");
  }
  const uint32_t worker = request.worker_id();
  PP_RETURN_IF_ERROR(CheckNotEvicted(worker));
  PP_RETURN_IF_ERROR(CheckAnnouncement(request));
  if (!options_.sync && !pushes_.empty()) {
    // A new grant fences the clone's earlier pushes, so those must be applied or refused first.
    const bool deciding = IsDeciding();
    const uint32_t replica = deciding ? decided_.contributions(0).replica() : 0;
    if (deciding && IsReplicaOf(replica, worker)) {
      return ProtocolError(ps::ErrorDetail::NOT_READY, serving_epoch_, version_,
                           "this clone's last push is being applied");
    }
    RefusePushes([&](uint32_t other) { return IsReplicaOf(other, worker); },
                 ProtocolError(ps::ErrorDetail::FENCED, serving_epoch_, version_,
                               "the clone has registered again"));
  }
  const Clone* known = replicas_.Find(worker);
  const bool is_new = known == nullptr || !known->registered;
  if (is_new || known->process_number != request.process_number()) {
    actions_.push_back(coordinator_action::Notice{
        false,
        absl::StrFormat("clone %d (%s) is here%s", worker, request.peer_name(),
                        is_new ? "" : " again, in a new process"),
        worker >= replicas_.num_replicas()});
  }
  replicas_.Register(worker, request.peer_name(), version_ + 1, now_,
                     [this](uint32_t replica) { return HasContribution(replica); });
  if (phase_ == Phase::kOpen) ReassignReplicas();
  ps::RegisterReply reply;
  reply.set_epoch(serving_epoch_);
  reply.set_version(version_);
  reply.set_num_replicas(replicas_.num_replicas());
  replicas_.clone(worker).session = request.session();
  replicas_.clone(worker).process_number = request.process_number();
  for (ps::ReplicaGrant& grant : GrantsOf(worker)) *reply.add_grants() = std::move(grant);
  reply.set_lease_milliseconds(absl::ToInt64Milliseconds(options_.lease));
  reply.set_training_done(training_done());
  return reply;
}

std::vector<ps::ReplicaGrant> Coordinator::GrantsOf(uint32_t worker_id) const {
  std::vector<ps::ReplicaGrant> grants = replicas_.GrantsOf(worker_id);
  if (options_.sync) return grants;
  for (ps::ReplicaGrant& grant : grants) {
    grant.set_position(positions_.Next(grant.replica(), replicas_.num_replicas()));
  }
  return grants;
}

void Coordinator::On(const coordinator_event::Heartbeat& event) {
  actions_.push_back(
      coordinator_action::ReplyHeartbeat{event.call, HandleHeartbeat(event.request)});
}

absl::StatusOr<ps::HeartbeatReply> Coordinator::HandleHeartbeat(
    const ps::HeartbeatRequest& request) {
  ps::HeartbeatReply reply;
  reply.set_epoch(serving_epoch_);
  reply.set_version(version_);
  reply.set_server_nanoseconds(absl::ToInt64Nanoseconds(now_));
  if (absl::IsAborted(stop_reason_)) return StoppedError();
  if (!stop_reason_.ok()) {
    reply.set_stopped(std::string(stop_reason_.message()));
    return reply;
  }
  PP_RETURN_IF_ERROR(CheckRequest(request.run_id(), request.epoch()));
  PP_RETURN_IF_ERROR(CheckNotEvicted(request.worker_id()));
  const Clone* clone = replicas_.Find(request.worker_id());
  const bool somebody_else =
      rules_.check_session && clone != nullptr &&
      (clone->session != request.session() || clone->process_number != request.process_number());
  if (somebody_else || !replicas_.Renew(request.worker_id(), now_)) {
    return ProtocolError(ps::ErrorDetail::EPOCH_CHANGED, serving_epoch_, version_,
                         absl::StrFormat("worker %d is not registered", request.worker_id()));
  }
  replicas_.clone(request.worker_id()).progress = request.progress();
  if (phase_ == Phase::kOpen) ReassignReplicas();
  for (ps::ReplicaGrant& grant : GrantsOf(request.worker_id())) {
    *reply.add_grants() = std::move(grant);
  }
  reply.set_training_done(training_done());
  reply.set_waiting_for(WaitingFor(now_));
  return reply;
}

void Coordinator::AnswerCommit(CallId call, ps::PushReply::Outcome outcome, ps::Level level,
                               uint64_t staleness) {
  ps::CommitReply reply;
  reply.set_outcome(outcome);
  reply.set_epoch(serving_epoch_);
  reply.set_version(version_);
  reply.set_level(level);
  reply.set_staleness(staleness);
  actions_.push_back(coordinator_action::ReplyCommit{call, std::move(reply)});
}

absl::Status Coordinator::CheckCommit(const ps::CommitRequest& request) const {
  PP_RETURN_IF_ERROR(CheckRequest(request.key().run_id(), request.key().epoch()));
  PP_RETURN_IF_ERROR(CheckNotEvicted(request.key().worker_id()));
  if (request.key().replica() >= replicas_.num_replicas()) {
    return absl::InvalidArgumentError(absl::StrFormat("replica %d does not exist: this job has %d",
                                                      request.key().replica(),
                                                      replicas_.num_replicas()));
  }
  if (request.info().samples() > kMaxSamples) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d samples in one contribution, expected "
                        "at most %d",
                        request.info().samples(), kMaxSamples));
  }
  return absl::OkStatus();
}

void Coordinator::On(const coordinator_event::Commit& event) {
  if (const absl::Status status = CheckCommit(event.request); !status.ok()) {
    actions_.push_back(coordinator_action::ReplyCommit{event.call, status});
    return;
  }
  replicas_.Renew(event.request.key().worker_id(), now_);
  if (options_.sync) {
    CommitSync(event);
  } else {
    CommitAsync(event);
  }
}

void Coordinator::CommitSync(const coordinator_event::Commit& event) {
  const ps::PushKey& key = event.request.key();
  const ReplicaTable::Replica& replica = replicas_.replica(key.replica());
  const bool decided =
      rules_.freeze_contributors && phase_ != Phase::kOpen && key.step() == round_.step();
  const ReplicaCommit* earlier = key.step() == round_.step() ? round_.Find(key.replica()) : nullptr;
  if (key.step() <= version_ || (decided && earlier == nullptr)) {
    NoteLate(key);
    AnswerCommit(event.call, ps::PushReply::ALREADY_APPLIED, ps::APPLIED);
    return;
  }
  if (key.step() > version_ + 1 || AllStepsApplied()) {
    actions_.push_back(coordinator_action::ReplyCommit{
        event.call,
        ProtocolError(ps::ErrorDetail::STEP_TOO_NEW, serving_epoch_, version_ + 1,
                      AllStepsApplied()
                          ? absl::StrFormat("step %d was the last", version_)
                          : absl::StrFormat("step %d is open, not %d", version_ + 1, key.step()))});
    return;
  }
  if (earlier != nullptr && earlier->grant == key.grant()) {
    ++counters_.duplicate_commits;
    round_.CountRequest();
    AnswerCommit(event.call,
                 earlier->info.samples() == 0 ? ps::PushReply::VOID : ps::PushReply::DUPLICATE,
                 ps::COMMITTED);
    if (phase_ == Phase::kOpen) DecideIfReady();
    return;
  }
  const bool fenced =
      earlier != nullptr || key.grant() != replica.grant || key.step() < replica.from_step;
  if (fenced && (rules_.check_grant_at_commit || earlier != nullptr)) {
    actions_.push_back(coordinator_action::ReplyCommit{
        event.call, ProtocolError(ps::ErrorDetail::FENCED, serving_epoch_, version_,
                                  absl::StrFormat("replica %d of step %d belongs to another grant",
                                                  key.replica(), key.step()))});
    return;
  }
  const bool is_void = event.request.info().samples() == 0;
  if (is_void && CountVoid(event.request)) {
    actions_.push_back(
        coordinator_action::ReplyCommit{event.call, CheckRequest(options_.run_id, serving_epoch_)});
    return;
  }
  lagging_.erase(key.replica());
  round_.Add(key.replica(), {key.grant(), key.worker_id(), event.request.info()}, now_);
  round_.CountRequest();
  AnswerCommit(event.call, is_void ? ps::PushReply::VOID : ps::PushReply::ACCEPTED, ps::COMMITTED);
  DecideIfReady();
}

void Coordinator::CommitAsync(const coordinator_event::Commit& event) {
  const ps::PushKey& key = event.request.key();
  const auto refuse = [&](const absl::Status& status) {
    actions_.push_back(coordinator_action::ReplyCommit{event.call, status});
  };
  if (rules_.check_grant_at_commit && key.grant() != replicas_.replica(key.replica()).grant) {
    return refuse(
        ProtocolError(ps::ErrorDetail::FENCED, serving_epoch_, version_,
                      absl::StrFormat("replica %d has been granted anew", key.replica())));
  }
  for (PendingPush& push : pushes_) {
    if (push.request.key().replica() == key.replica() &&
        push.request.key().grant() == key.grant() && push.request.key().step() == key.step()) {
      ++counters_.duplicate_commits;
      push.calls.push_back(event.call);
      return;
    }
  }
  const bool known = positions_.IsDone(key.replica(), key.position(), replicas_.num_replicas());
  if (AllStepsApplied() || (known && rules_.check_push_marks)) {
    if (known) ++counters_.duplicate_commits;
    AnswerCommit(event.call, ps::PushReply::ALREADY_APPLIED, ps::APPLIED);
    return;
  }
  const uint64_t next = positions_.Next(key.replica(), replicas_.num_replicas());
  if (key.position() > next && rules_.refuse_later_positions) {
    return refuse(
        ProtocolError(ps::ErrorDetail::FENCED, serving_epoch_, version_,
                      absl::StrFormat("replica %d goes on with batch %d, not %d: register "
                                      "again",
                                      key.replica(), next, key.position())));
  }
  // The worker has given up its earlier push: the shards dropped those bytes for this push.
  RefusePushes([&](uint32_t replica) { return replica == key.replica(); },
               ProtocolError(ps::ErrorDetail::FENCED, serving_epoch_, version_,
                             "a later push of the replica has come"));
  if (event.request.info().samples() == 0) {
    if (CountVoid(event.request)) return refuse(CheckRequest(options_.run_id, serving_epoch_));
    positions_.SetDone(key.replica(), key.position());
    AnswerCommit(event.call, ps::PushReply::VOID, ps::COMMITTED);
    CountVoidStep();
    return;
  }
  pushes_.push_back({{event.call}, event.request});
  DecideIfReady();
}

void Coordinator::NoteLate(const ps::PushKey& key) {
  const auto lagging = lagging_.find(key.replica());
  if (lagging != lagging_.end() && lagging->second == key.grant()) lagging_.erase(lagging);
  // A contribution that a step went on without was counted as a drop at the decision.
  const auto included = last_included_.find(key.replica());
  const bool counted = included != last_included_.end() && key.step() <= included->second;
  if (counted || key.step() <= restore_.step()) ++counters_.duplicate_commits;
}

bool Coordinator::CountVoid(const ps::CommitRequest& request) {
  ++counters_.void_contributions;
  const std::string& variable = request.info().non_finite_variable();
  const std::string text =
      absl::StrFormat("step %d: %s has a non-finite value%s%s", version_ + 1,
                      CloneName(request.key().worker_id()), variable.empty() ? "" : ": ", variable);
  if (options_.non_finite_policy == NonFinitePolicy::kStop) {
    Stop(ProtocolError(ps::ErrorDetail::STOPPED, serving_epoch_, version_, text));
    return true;
  }
  Warn(text + "; its contribution is left out");
  return false;
}

}  // namespace pushpull
