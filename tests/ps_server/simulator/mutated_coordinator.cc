#include "tests/ps_server/simulator/mutated_coordinator.h"

#include <algorithm>
#include <utility>

#include "common/wire/error_detail.h"

namespace pushpull::sim {
namespace {

constexpr CallId kNobody = UINT64_MAX;  // The call id of a commit that no worker sent.

}  // namespace

CoordinatorActions MutatedCoordinator::Handle(const CoordinatorEvent& event, absl::Duration now) {
  CoordinatorActions actions;
  Add(event, now, &actions);
  if (const auto* commit = std::get_if<coordinator_event::Commit>(&event)) {
    const bool repeated =
        std::any_of(actions.begin(), actions.end(), [commit](const CoordinatorAction& action) {
          const auto* reply = std::get_if<coordinator_action::ReplyCommit>(&action);
          return reply != nullptr && reply->call == commit->call && reply->reply.ok() &&
                 reply->reply->outcome() == ps::PushReply::DUPLICATE;
        });
    if (bugs_.count_requests && repeated) CommitForAnother(commit->request.key(), now, &actions);
  }
  const auto* replied = std::get_if<coordinator_event::ShardReplied>(&event);
  if (bugs_.await_first_shard_only && replied != nullptr && replied->reply.ok()) {
    const auto first = calls_.find(replied->rpc);
    if (first != calls_.end() && first->second.is_apply && first->second.shard == 0) {
      const std::map<RpcId, Call> calls = calls_;
      for (const auto& [rpc, call] : calls) {
        if (!call.is_apply || call.shard == 0) continue;
        Add(coordinator_event::ShardReplied{rpc, ShardReply(ps::ApplyReply())}, now, &actions);
      }
    }
  }
  return actions;
}

void MutatedCoordinator::Add(const CoordinatorEvent& event, absl::Duration now,
                             CoordinatorActions* actions) {
  CoordinatorEvent altered = event;
  std::visit([this](auto& e) { Alter(&e); }, altered);
  for (CoordinatorAction& action : Coordinator::Handle(altered, now)) {
    std::visit([this](auto& a) { See(&a); }, action);
    actions->push_back(std::move(action));
  }
}

void MutatedCoordinator::CommitForAnother(const ps::PushKey& key, absl::Duration now,
                                          CoordinatorActions* actions) {
  for (const auto& [replica, grant] : newest_grants_) {
    coordinator_event::Commit commit{kNobody, {}};
    *commit.request.mutable_key() = key;
    commit.request.mutable_key()->set_replica(replica);
    commit.request.mutable_key()->set_grant(grant);
    CoordinatorActions more;
    Add(commit, now, &more);
    bool counted = false;
    for (CoordinatorAction& action : more) {
      const auto* reply = std::get_if<coordinator_action::ReplyCommit>(&action);
      if (reply == nullptr || reply->call != kNobody) {
        actions->push_back(std::move(action));
      } else {
        counted = reply->reply.ok() && reply->reply->outcome() == ps::PushReply::VOID;
      }
    }
    if (counted) return;
  }
}

void MutatedCoordinator::Alter(coordinator_event::Register* event) {
  const auto session = sessions_.find(event->request.worker_id());
  if (bugs_.ignore_sessions && session != sessions_.end()) {
    event->request.set_session(session->second);
  }
  registering_ = event->request;
}

void MutatedCoordinator::Alter(coordinator_event::Heartbeat* event) {
  ps::HeartbeatRequest& request = event->request;
  if (bugs_.ignore_epochs) request.set_epoch(std::max(request.epoch(), epoch()));
  const auto session = sessions_.find(request.worker_id());
  if (bugs_.ignore_sessions && session != sessions_.end()) request.set_session(session->second);
}

void MutatedCoordinator::Alter(coordinator_event::Commit* event) {
  ps::PushKey& key = *event->request.mutable_key();
  if (bugs_.ignore_epochs) key.set_epoch(std::max(key.epoch(), epoch()));
  if (bugs_.ignore_grants_of_commits) {
    key.set_grant(std::max(key.grant(), newest_grants_[key.replica()]));
  }
  if (!options_.sync && key.replica() < num_replicas()) {
    const uint64_t next = positions_.Next(key.replica(), num_replicas());
    const bool alters =
        key.position() < next ? bugs_.ignore_push_marks : bugs_.accept_later_positions;
    if (alters) key.set_position(next);
  }
  committing_ = key;
}

void MutatedCoordinator::Alter(coordinator_event::Evict* event) {
  if (bugs_.forget_evictions) event->request.set_worker_id(UINT32_MAX);
}

void MutatedCoordinator::Alter(coordinator_event::ShardReplied* event) {
  if (event->reply.ok()) {
    if (const auto* restored = std::get_if<ps::RestoreReply>(&*event->reply)) {
      restored_marks_ = restored->marks();
    }
  }
  if (!bugs_.overlook_restarts || !serving_) return;
  if (!event->reply.ok()) {
    const ps::ErrorDetail::Kind kind = GetErrorDetail(event->reply.status()).kind();
    if (kind == ps::ErrorDetail::NOT_READY || kind == ps::ErrorDetail::EPOCH_CHANGED) {
      event->reply = absl::Status(event->reply.status().code(), event->reply.status().message());
    }
  } else if (auto* state = std::get_if<ps::ShardStateReply>(&*event->reply)) {
    state->set_boot_id(boot_ids_.at(calls_.at(event->rpc).shard));
    state->set_epoch(epoch());
  }
}

void MutatedCoordinator::See(coordinator_action::Serving* action) {
  serving_ = true;
  positions_ = ReplicaPositions();
  if (!options_.sync) positions_.Restore(restored_marks_, action->version);
}

void MutatedCoordinator::See(coordinator_action::CallShard* action) {
  const auto* apply = std::get_if<shard_call::Apply>(&action->call);
  const auto* norm = std::get_if<shard_call::MeasureNorm>(&action->call);
  if (action->shard == 0 && apply != nullptr) {
    std::erase_if(calls_, [](const auto& call) { return call.second.is_apply; });
  }
  calls_[action->rpc] = {action->shard, apply != nullptr};
  if (const auto* restore = std::get_if<shard_call::Restore>(&action->call)) {
    boot_ids_.assign(restore->request.boot_ids().begin(), restore->request.boot_ids().end());
  }
  if (apply == nullptr && norm == nullptr) return;
  decided_ = apply != nullptr ? apply->request : norm->request;
  if (!options_.sync) positions_.Restore(decided_.marks(), decided_.step());
}

void MutatedCoordinator::See(coordinator_action::ReplyRegister* action) {
  if (!action->reply.ok()) return;
  SeeGrants(action->reply->grants());
  sessions_[registering_.worker_id()] = registering_.session();
}

void MutatedCoordinator::See(coordinator_action::ReplyHeartbeat* action) {
  if (action->reply.ok()) SeeGrants(action->reply->grants());
}

void MutatedCoordinator::SeeGrants(
    const google::protobuf::RepeatedPtrField<ps::ReplicaGrant>& grants) {
  for (const ps::ReplicaGrant& grant : grants) newest_grants_[grant.replica()] = grant.grant();
}

void MutatedCoordinator::See(coordinator_action::ReplyCommit* action) {
  if (!action->reply.ok()) return;
  ps::CommitReply& reply = *action->reply;
  if (!options_.sync) {
    if (reply.outcome() == ps::PushReply::VOID) {
      positions_.SetDone(committing_.replica(), committing_.position());
    }
    return;
  }
  // In synchronous mode a commit is answered immediately, so `committing_` is the key of the
  // answer.
  const bool late = reply.outcome() == ps::PushReply::ALREADY_APPLIED &&
                    committing_.step() == decided_.step() && version() < decided_.step();
  if (bugs_.accept_late_commits && late) {
    reply.set_outcome(ps::PushReply::ACCEPTED);
    reply.set_level(ps::COMMITTED);
  }
}

void MutatedCoordinator::See(coordinator_action::ReplyEvict* action) {
  if (bugs_.forget_evictions && absl::IsNotFound(action->reply.status())) {
    action->reply = ps::EvictReply();
  }
}

}  // namespace pushpull::sim
