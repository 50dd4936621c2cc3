// Tested by tests/ps_server/core/steps_test.cc.
// How Steps handles the commits of clones.
#include <utility>

#include "absl/strings/str_format.h"

#include "ps_server/core/protocol_error.h"
#include "ps_server/core/steps.h"

namespace pushpull {
namespace {

// Far above any batch size. Keeps sums of samples exact in a double.
constexpr uint64_t kMaxSamples = uint64_t{1} << 32;

}  // namespace

absl::Status Steps::CheckCommit(const ps::CommitRequest& request) const {
  const uint32_t replica = request.key().replica();
  if (replica >= members_->num_replicas()) {
    const std::string text = absl::StrFormat("replica %d does not exist: this job has %d", replica,
                                             members_->num_replicas());
    // The clone goes on as a spare if the replica was there before the job was scaled.
    if (replica < members_->most_replicas()) return Error(ps::ErrorDetail::FENCED, text);
    return absl::InvalidArgumentError(text);
  }
  if (request.info().samples() > kMaxSamples) {
    return absl::InvalidArgumentError(
        absl::StrFormat("the contribution of clone %d to replica %d has %d samples, expected at "
                        "most %d",
                        request.key().worker_id(), replica, request.info().samples(), kMaxSamples));
  }
  return absl::OkStatus();
}

Followup Steps::Commit(CallId call, const ps::CommitRequest& request) {
  return options_.sync ? CommitSync(call, request) : CommitAsync(call, request);
}

Followup Steps::CommitSync(CallId call, const ps::CommitRequest& request) {
  const ps::PushKey& key = request.key();
  const ReplicaTable::Replica& replica = members_->replica(key.replica());
  const bool decided = !is_open() && key.step() == commits_.step();
  const ReplicaCommit* earlier =
      key.step() == commits_.step() ? commits_.Find(key.replica()) : nullptr;
  if (key.step() <= job_.version || (decided && earlier == nullptr)) {
    NoteLate(key);
    Answer(call, ps::PushReply::ALREADY_APPLIED, ps::APPLIED);
    return followup::None{};
  }
  const bool all_applied = job_.length.EndsAt(job_.version);
  if (key.step() > job_.version + 1 || all_applied) {
    Refuse({call}, ProtocolError(ps::ErrorDetail::STEP_TOO_NEW, job_.epoch, job_.version + 1,
                                 all_applied ? absl::StrFormat("step %d was the last", job_.version)
                                             : absl::StrFormat("step %d is open, not %d",
                                                               job_.version + 1, key.step())));
    return followup::None{};
  }
  if (earlier != nullptr && earlier->grant == key.grant()) {
    ++duplicate_commits_;
    Answer(call, earlier->info.samples() == 0 ? ps::PushReply::VOID : ps::PushReply::DUPLICATE,
           ps::COMMITTED);
    return followup::None{};
  }
  if (earlier != nullptr || key.grant() != replica.grant || key.step() < replica.from_step) {
    Refuse({call}, Error(ps::ErrorDetail::FENCED,
                         absl::StrFormat("replica %d of step %d belongs to another grant",
                                         key.replica(), key.step())));
    return followup::None{};
  }
  const bool is_void = request.info().samples() == 0;
  if (is_void) {
    const absl::Status status = CountVoid(request);
    if (!status.ok()) return followup::Stop{status, call};
  }
  lagging_.erase(key.replica());
  commits_.Add(key.replica(), {key.grant(), key.worker_id(), request.info()}, job_.now);
  Answer(call, is_void ? ps::PushReply::VOID : ps::PushReply::ACCEPTED, ps::COMMITTED);
  return followup::None{};
}

Followup Steps::CommitAsync(CallId call, const ps::CommitRequest& request) {
  const ps::PushKey& key = request.key();
  if (key.grant() != members_->replica(key.replica()).grant) {
    Refuse({call}, Error(ps::ErrorDetail::FENCED,
                         absl::StrFormat("replica %d has been granted anew", key.replica())));
    return followup::None{};
  }
  if (pushes_.Join(call, key)) {
    ++duplicate_commits_;
    return followup::None{};
  }
  const uint64_t next = NextPosition(key.replica());
  const bool known = key.position() < next;
  if (job_.length.EndsAt(job_.version) || known) {
    if (known) ++duplicate_commits_;
    Answer(call, ps::PushReply::ALREADY_APPLIED, ps::APPLIED);
    return followup::None{};
  }
  if (key.position() > next) {
    Refuse({call}, Error(ps::ErrorDetail::FENCED,
                         absl::StrFormat("replica %d goes on with batch %d, not %d: register "
                                         "again",
                                         key.replica(), next, key.position())));
    return followup::None{};
  }
  // The clone has given up its earlier push: the shards dropped those bytes for this push.
  RefusePushes([&](uint32_t replica) { return replica == key.replica(); },
               Error(ps::ErrorDetail::FENCED, "a later push of the replica has come"));
  if (request.info().samples() > 0) {
    pushes_.Add(call, request);
    return followup::None{};
  }
  const absl::Status status = CountVoid(request);
  if (!status.ok()) return followup::Stop{status, call};
  positions_.SetDone(key.replica(), key.position());
  Answer(call, ps::PushReply::VOID, ps::COMMITTED);
  return CountVoidStep();
}

void Steps::NoteLate(const ps::PushKey& key) {
  const auto lagging = lagging_.find(key.replica());
  if (lagging != lagging_.end() && lagging->second == key.grant()) lagging_.erase(lagging);
  // A contribution that a step went on without was counted as a drop at the decision.
  const auto included = last_included_.find(key.replica());
  const bool counted = included != last_included_.end() && key.step() <= included->second;
  if (counted || key.step() <= restored_version_) ++duplicate_commits_;
}

absl::Status Steps::CountVoid(const ps::CommitRequest& request) {
  ++void_contributions_;
  const std::string& variable = request.info().non_finite_variable();
  const std::string text = absl::StrFormat(
      "step %d: %s has a non-finite value%s%s", job_.version + 1,
      members_->CloneName(request.key().worker_id()), variable.empty() ? "" : ": ", variable);
  if (options_.non_finite_policy == NonFinitePolicy::kStop) {
    return Error(ps::ErrorDetail::STOPPED, text);
  }
  Warn(text + "; its contribution is left out", actions_);
  return absl::OkStatus();
}

void Steps::Answer(CallId call, ps::PushReply::Outcome outcome, ps::Level level,
                   uint64_t staleness) {
  ps::CommitReply reply;
  reply.set_outcome(outcome);
  reply.set_version(job_.version);
  reply.set_level(level);
  reply.set_staleness(staleness);
  if (options_.sync && job_.next_step_is_redivided) reply.set_new_grants_step(commits_.step() + 1);
  actions_->push_back(coordinator_action::ReplyCommit{call, std::move(reply)});
}

void Steps::Refuse(const std::vector<CallId>& calls, const absl::Status& status) {
  for (const CallId call : calls) {
    actions_->push_back(coordinator_action::ReplyCommit{call, status});
  }
}

void Steps::RefusePushes(absl::FunctionRef<bool(uint32_t)> of, const absl::Status& status) {
  // While a step is decided, the front push may be on its way into the variables.
  Refuse(pushes_.Remove(IsDeciding() ? 1 : 0, of), status);
}

void Steps::AnswerPushes(const absl::Status& status) {
  const std::vector<CallId> calls = pushes_.RemoveAll();
  if (!status.ok()) return Refuse(calls, status);
  for (const CallId call : calls) Answer(call, ps::PushReply::ALREADY_APPLIED, ps::APPLIED);
}

}  // namespace pushpull
