// What the Coordinator reports about itself.
// Tested by tests/ps_server/core/coordinator_test.cc.
#include <set>

#include "absl/strings/str_format.h"

#include "ps_server/core/coordinator.h"

namespace pushpull {
namespace {

// A shorter wait is not reported.
constexpr absl::Duration kWorthTelling = absl::Seconds(2);

}  // namespace

std::string Coordinator::CloneName(uint32_t worker_id) const {
  const Clone* clone = replicas_.Find(worker_id);
  std::string name = absl::StrFormat("clone %d", worker_id);
  if (worker_id < replicas_.num_replicas())
    name += absl::StrFormat(" of %d", replicas_.num_replicas());
  if (clone != nullptr && clone->seen) name += absl::StrFormat(" (%s)", clone->peer_name);
  return name;
}

std::vector<uint32_t> Coordinator::LateReplicas(absl::Duration now) const {
  std::vector<uint32_t> late;
  if (phase_ != Phase::kOpen || now - phase_since_ < kWorthTelling) return late;
  if (!options_.sync && replicas_.AnyAlive()) return late;
  for (uint32_t i = 0; i < replicas_.num_replicas(); ++i) {
    if (!options_.sync || !round_.Has(i)) late.push_back(i);
  }
  return late;
}

std::string Coordinator::WaitingFor(absl::Duration now) const {
  if (calls_.active() && now - calls_.started() >= kWorthTelling) {
    return absl::StrFormat("shard %d of %d", calls_.FirstMissing().value_or(0), options_.tasks);
  }
  if (phase_ != Phase::kOpen || now - phase_since_ < kWorthTelling) return "";
  if (replicas_.num_replicas() == 0) return "the first clone";
  const std::vector<uint32_t> late = LateReplicas(now);
  if (late.empty()) return "";
  const uint32_t worker = replicas_.replica(late[0]).owner.value_or(late[0]);
  const Clone* clone = replicas_.Find(worker);
  std::string state = "never seen";
  if (replicas_.IsEvicted(worker)) {
    state = "evicted, and no other is there";
  } else if (clone != nullptr && clone->alive) {
    state = clone->progress.phase().empty() ? "alive" : clone->progress.phase();
  } else if (clone != nullptr && clone->seen) {
    state = "lost";
  }
  if (worker != late[0]) state += absl::StrFormat(", for replica %d", late[0]);
  std::string text =
      absl::StrFormat("clone %d of %d (%s)", worker, replicas_.num_replicas(), state);
  if (late.size() > 1) text += absl::StrFormat(" and %d more", late.size() - 1);
  return text;
}

double Coordinator::WaitingSeconds(absl::Duration now) const {
  if (WaitingFor(now).empty()) return 0.0;
  return absl::ToDoubleSeconds(now - (calls_.active() ? calls_.started() : phase_since_));
}

ps::StatusReply Coordinator::Status(absl::Duration now) const {
  ps::StatusReply status;
  status.set_run_id(options_.run_id);
  status.set_epoch(serving_epoch_);
  status.set_version(version_);
  status.set_durable_step(durable_step_);
  status.set_num_steps(options_.num_steps);
  status.set_sync(options_.sync);
  status.set_training_done(training_done());
  status.set_waiting_for(WaitingFor(now));
  status.set_waiting_seconds(WaitingSeconds(now));
  status.set_rolled_back_steps(rolled_back_steps_);
  status.set_dropped_contributions(counters_.dropped_contributions);
  status.set_duplicate_pushes(counters_.duplicate_commits);
  status.set_checkpoint_failures(counters_.checkpoint_failures);
  status.set_void_contributions(counters_.void_contributions);
  *status.mutable_staleness() = counters_.staleness.ToProto();
  *status.mutable_contributors() = counters_.contributors.ToProto();
  status.set_checkpoints(counters_.checkpoints);
  status.set_seconds_since_checkpoint(counters_.published_at.has_value()
                                          ? absl::ToDoubleSeconds(now - *counters_.published_at)
                                          : -1);
  status.set_last_checkpoint_seconds(absl::ToDoubleSeconds(counters_.checkpoint_took));
  std::set<uint32_t> late;
  for (const uint32_t replica : LateReplicas(now))
    late.insert(replicas_.replica(replica).owner.value_or(replica));
  status.mutable_late_workers()->Assign(late.begin(), late.end());
  if (!stop_reason_.ok()) status.set_stopped(std::string(stop_reason_.message()));
  std::map<uint32_t, Clone> clones = replicas_.clones();
  for (uint32_t i = 0; i < replicas_.num_replicas(); ++i) clones.try_emplace(i);
  for (const auto& [id, clone] : clones) {
    ps::CloneStatus& entry = *status.add_clones();
    entry.set_worker_id(id);
    entry.set_peer_name(clone.peer_name);
    for (const ps::ReplicaGrant& grant : replicas_.GrantsOf(id))
      entry.add_replicas(grant.replica());
    entry.set_alive(clone.alive);
    entry.set_seconds_since_seen(clone.seen ? absl::ToDoubleSeconds(now - clone.last_seen) : -1);
    *entry.mutable_progress() = clone.progress;
    entry.set_contributions(clone.contributions);
    entry.set_drops(clone.drops);
    entry.set_evicted(clone.evicted.has_value());
  }
  return status;
}

}  // namespace pushpull
