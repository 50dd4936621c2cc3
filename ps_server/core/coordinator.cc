#include "ps_server/core/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace pushpull {

Coordinator::Coordinator(CoordinatorOptions options, ProtocolRules rules)
    : options_(std::move(options)),
      rules_(rules),
      epoch_pace_(options_.epoch_pace),
      replicas_(options_.lease, options_.sync),
      calls_(1, 3, options_.first_retry, options_.last_retry),
      snapshots_(2, 3, options_.first_retry, options_.last_retry),
      polls_(3, 3, options_.first_retry, options_.last_retry) {
  if (options_.num_replicas > 0) replicas_.SetNumReplicas(options_.num_replicas);
}

CoordinatorActions Coordinator::Handle(const CoordinatorEvent& event, absl::Duration now) {
  actions_.clear();
  now_ = now;
  RunTimers();
  std::visit([this](const auto& e) { On(e); }, event);
  return std::exchange(actions_, {});
}

void Coordinator::On(const coordinator_event::Start& event) {
  next_epoch_ = event.stored_epoch;
  BeginEpoch("start");
}

void Coordinator::On(const coordinator_event::Tick&) {}

void Coordinator::On(const coordinator_event::Cancel& event) {
  for (PendingPush& push : pushes_) std::erase(push.calls, event.call);
  std::erase_if(checkpoint_calls_,
                [&](const CheckpointCall& call) { return call.call == event.call; });
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
  if (!event.reply.ok()) {
    HandleShardFailure(fan_out, *shard, event.reply.status());
    return;
  }
  if (fan_out == &polls_ && !CheckShardState(*shard, std::get<ps::ShardStateReply>(*event.reply))) {
    return;
  }
  fan_out->SetReply(*shard, *event.reply);
  const bool first_is_enough =
      !rules_.await_all_shards && fan_out == &calls_ && phase_ == Phase::kApplying;
  if (!fan_out->AllReplied() && !(first_is_enough && fan_out->FirstMissing() != 0)) return;
  if (fan_out == &snapshots_) {
    OnSnapshotsWritten();
  } else if (fan_out == &polls_) {
    polls_.Stop();
  } else if (phase_ == Phase::kQueryingShards) {
    OnShardStates();
  } else if (phase_ == Phase::kRestoring) {
    OnAllRestored();
  } else if (phase_ == Phase::kMeasuring) {
    OnNormsMeasured();
  } else if (phase_ == Phase::kApplying) {
    OnAllApplied();
  }
}

void Coordinator::RunTimers() {
  if (now_ >= DrainLimit()) GiveUpDraining();
  PersistEpochIfDue();
  if (now_ >= FinishedRunLimit()) FinishWithoutShards();
  for (FanOut* fan_out : {&calls_, &snapshots_, &polls_}) fan_out->Retry(now_, &actions_);
  if (!IsServing()) return;
  for (const uint32_t worker : replicas_.ExpireLeases(now_)) {
    if (phase_ == Phase::kFinishing || phase_ == Phase::kDone) continue;  // clones may leave now
    actions_.push_back(coordinator_action::Notice{
        true,
        absl::StrFormat("%s has not been heard from for %s: lost", CloneName(worker),
                        absl::FormatDuration(options_.lease)),
        worker >= replicas_.num_replicas()});
  }
  if (phase_ == Phase::kDone) return;
  if (phase_ == Phase::kOpen) ReassignReplicas();
  if (options_.tasks > 1 && now_ >= next_poll_) {
    next_poll_ = now_ + options_.shard_poll;
    if (!polls_.active()) polls_.Start(shard_call::GetState{}, options_.tasks, now_, &actions_);
  }
  if (phase_ == Phase::kOpen) StartCheckpointIfDue();
  if (phase_ == Phase::kOpen) DecideIfReady();
  if (phase_ == Phase::kFinishing) FinishIfSaved();
}

absl::Duration Coordinator::NextWakeup() const {
  absl::Duration next =
      std::min({calls_.NextWakeup(), snapshots_.NextWakeup(), polls_.NextWakeup(), DrainLimit()});
  if (phase_ == Phase::kPersistingEpoch) next = std::min(next, persist_at_);
  next = std::min(next, FinishedRunLimit());
  if (!IsServing() || phase_ == Phase::kDone) return next;
  next = std::min(next, NextCheckpoint());
  if (options_.tasks > 1) next = std::min(next, next_poll_);
  if (phase_ != Phase::kFinishing) next = std::min(next, replicas_.NextWakeup(now_));
  if (phase_ != Phase::kOpen) return next;
  const bool may_drop = options_.min_contributors > 0 &&
                        options_.step_deadline > absl::ZeroDuration() && round_.num_replicas() > 0;
  if (may_drop && round_.num_replicas() - round_.num_void() >= options_.min_contributors) {
    next = std::min(next, round_.first_commit() + options_.step_deadline);
  }
  if (draining_) next = std::min(next, drain_since_ + options_.drain_patience);
  return next;
}

void Coordinator::Tell(std::string text) {
  actions_.push_back(coordinator_action::Notice{false, std::move(text)});
}

void Coordinator::Warn(std::string text) {
  actions_.push_back(coordinator_action::Notice{true, std::move(text)});
}

}  // namespace pushpull
