// Tested by tests/ps_server/core/membership_test.cc.
#include "ps_server/core/replica_table.h"

#include <algorithm>

namespace pushpull {

void ReplicaTable::SetNumReplicas(uint32_t num_replicas) {
  if (!replicas_.empty()) return;
  replicas_.resize(num_replicas);
  most_replicas_ = num_replicas;
}

void ReplicaTable::Divide(uint32_t num_replicas, uint64_t step) {
  replicas_.resize(num_replicas);
  most_replicas_ = std::max(most_replicas_, num_replicas);
  for (uint32_t i = 0; i < num_replicas; ++i) {
    // An owner whose lease has ended gets a new grant too: it may come back with the old one.
    if (replicas_[i].owner.has_value()) Grant(i, *replicas_[i].owner, step);
  }
}

void ReplicaTable::BeginEpoch(uint64_t epoch, absl::Duration now) {
  epoch_ = epoch;
  grants_ = 0;
  epoch_start_ = now;
  for (Replica& replica : replicas_) replica = Replica{};
  for (auto& [id, clone] : clones_) clone.registered = clone.alive = false;
}

const Clone* ReplicaTable::Find(uint32_t worker_id) const {
  const auto it = clones_.find(worker_id);
  return it == clones_.end() ? nullptr : &it->second;
}

void ReplicaTable::Grant(uint32_t replica, uint32_t worker_id, uint64_t from_step) {
  replicas_[replica] = {worker_id, (epoch_ << 32) | ++grants_, from_step};
}

bool ReplicaTable::IsAlive(std::optional<uint32_t> worker_id) const {
  if (!worker_id.has_value()) return false;
  const Clone* clone = Find(*worker_id);
  return clone != nullptr && clone->alive;
}

void ReplicaTable::Register(uint32_t worker_id, const std::string& peer_name, uint64_t step,
                            absl::Duration now, absl::FunctionRef<bool(uint32_t)> committed) {
  Clone& clone = clones_[worker_id];
  clone.peer_name = peer_name;
  clone.seen = clone.registered = clone.alive = true;
  clone.left = false;
  clone.last_seen = now;
  for (uint32_t i = 0; i < replicas_.size(); ++i) {
    const bool owned = replicas_[i].owner == worker_id;
    const bool free_home = i == worker_id && !IsAlive(replicas_[i].owner);
    if (owned) {
      Grant(i, worker_id, committed(i) ? step + 1 : step);
    } else if (free_home && !committed(i)) {
      Grant(i, worker_id, step);
    }
  }
}

bool ReplicaTable::Renew(uint32_t worker_id, absl::Duration now) {
  const auto it = clones_.find(worker_id);
  if (it == clones_.end() || !it->second.registered) return false;
  it->second.alive = true;
  it->second.last_seen = now;
  return true;
}

bool ReplicaTable::Leave(uint32_t worker_id) {
  const auto it = clones_.find(worker_id);
  if (it == clones_.end() || !it->second.registered) return false;
  it->second.registered = it->second.alive = false;
  it->second.left = true;
  return true;
}

std::vector<uint32_t> ReplicaTable::Evict(uint32_t worker_id, const std::string& reason) {
  std::vector<uint32_t> taken;
  Clone& clone = clones_[worker_id];
  if (clone.evicted.has_value()) return taken;
  clone.evicted = reason;
  clone.registered = clone.alive = false;
  for (uint32_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].owner == worker_id) taken.push_back(i);
  }
  return taken;
}

bool ReplicaTable::IsEvicted(uint32_t worker_id) const {
  const Clone* clone = Find(worker_id);
  return clone != nullptr && clone->evicted.has_value();
}

std::vector<uint32_t> ReplicaTable::ExpireLeases(absl::Duration now) {
  std::vector<uint32_t> lost;
  for (auto& [id, clone] : clones_) {
    if (clone.alive && now - clone.last_seen >= lease_) {
      clone.alive = false;
      lost.push_back(id);
    }
  }
  return lost;
}

std::optional<uint32_t> ReplicaTable::LeastBusy() const {
  std::map<uint32_t, int> replicas_of;
  for (const auto& [id, clone] : clones_) {
    if (clone.alive) replicas_of[id] = 0;
  }
  for (const Replica& replica : replicas_) {
    if (IsAlive(replica.owner)) ++replicas_of[*replica.owner];
  }
  const auto least =
      std::min_element(replicas_of.begin(), replicas_of.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (least == replicas_of.end()) return std::nullopt;
  return least->first;
}

std::vector<uint32_t> ReplicaTable::Reassign(uint64_t step, absl::Duration now,
                                             absl::FunctionRef<bool(uint32_t)> committed) {
  std::vector<uint32_t> changed;
  for (uint32_t i = 0; i < replicas_.size(); ++i) {
    const bool homeless = IsEvicted(i);
    if (!(reassign_ || homeless) || IsAlive(replicas_[i].owner) || committed(i)) continue;
    const std::optional<uint32_t> worker = LeastBusy();
    if (!worker.has_value()) break;
    if (!replicas_[i].owner.has_value() && !homeless) {
      // The home clone may be on its way. If it was seen before, it gets one lease to come back; if
      // it was never seen, it is waited for, or gets one lease too where an administrator has set
      // the number. Only an idle spare takes the replica over at once.
      const bool seen = Find(i) != nullptr && Find(i)->seen;
      const bool idle = *worker >= replicas_.size() && GrantsOf(*worker).empty();
      const bool may_move = (seen || !waits_for_unseen_) && now - epoch_start_ >= lease_;
      if (!idle && !may_move) continue;
    }
    Grant(i, *worker, step);
    changed.push_back(i);
  }
  return changed;
}

std::vector<uint32_t> ReplicaTable::ReturnHome(uint64_t step) {
  std::vector<uint32_t> changed;
  for (uint32_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].owner == i || !IsAlive(i)) continue;
    Grant(i, i, step);
    changed.push_back(i);
  }
  return changed;
}

std::vector<ps::ReplicaGrant> ReplicaTable::GrantsOf(uint32_t worker_id) const {
  std::vector<ps::ReplicaGrant> grants;
  for (uint32_t i = 0; i < replicas_.size(); ++i) {
    if (replicas_[i].owner != worker_id) continue;
    ps::ReplicaGrant grant;
    grant.set_replica(i);
    grant.set_grant(replicas_[i].grant);
    grant.set_from_step(replicas_[i].from_step);
    grants.push_back(grant);
  }
  return grants;
}

bool ReplicaTable::HasRoomFor(uint32_t worker_id) {
  if (worker_id < replicas_.size() || clones_.contains(worker_id)) return true;
  uint32_t spares = 0;
  auto oldest = clones_.end();
  for (auto it = clones_.lower_bound(num_replicas()); it != clones_.end(); ++it) {
    ++spares;
    const bool forgettable =
        !it->second.alive && !it->second.evicted.has_value() && GrantsOf(it->first).empty();
    if (!forgettable) continue;
    if (oldest == clones_.end() || it->second.last_seen < oldest->second.last_seen) oldest = it;
  }
  if (spares < kMaxSpares) return true;
  if (oldest == clones_.end()) return false;
  clones_.erase(oldest);
  return true;
}

bool ReplicaTable::AnyAlive() const { return num_alive() > 0; }

uint32_t ReplicaTable::num_alive() const {
  return static_cast<uint32_t>(
      std::count_if(clones_.begin(), clones_.end(), [](const auto& c) { return c.second.alive; }));
}

absl::Duration ReplicaTable::NextWakeup(absl::Duration now) const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [id, clone] : clones_) {
    if (clone.alive) next = std::min(next, clone.last_seen + lease_);
  }
  // Then replicas may move whose homes have not come back after the start of the epoch.
  if (now < epoch_start_ + lease_) next = std::min(next, epoch_start_ + lease_);
  return next;
}

}  // namespace pushpull
