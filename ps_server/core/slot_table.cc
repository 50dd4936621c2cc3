#include "ps_server/core/slot_table.h"

#include <algorithm>

namespace pushpull {

void SlotTable::SetNumSlots(uint32_t num_slots) {
  if (slots_.empty()) slots_.resize(num_slots);
}

void SlotTable::BeginEpoch(uint64_t epoch, absl::Duration now) {
  epoch_ = epoch;
  grants_ = 0;
  epoch_start_ = now;
  for (Slot& slot : slots_) slot = Slot{};
  for (auto& [id, clone] : clones_) clone.registered = clone.alive = false;
}

const Clone* SlotTable::Find(uint32_t worker_id) const {
  const auto it = clones_.find(worker_id);
  return it == clones_.end() ? nullptr : &it->second;
}

void SlotTable::Grant(uint32_t slot, uint32_t worker_id, uint64_t from_step) {
  slots_[slot] = {worker_id, (epoch_ << 32) | ++grants_, from_step};
}

bool SlotTable::IsAlive(std::optional<uint32_t> worker_id) const {
  if (!worker_id.has_value()) return false;
  const Clone* clone = Find(*worker_id);
  return clone != nullptr && clone->alive;
}

void SlotTable::Register(uint32_t worker_id, const std::string& peer_name, uint64_t step,
                         absl::Duration now, absl::FunctionRef<bool(uint32_t)> committed) {
  Clone& clone = clones_[worker_id];
  clone.peer_name = peer_name;
  clone.seen = clone.registered = clone.alive = true;
  clone.last_seen = now;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const bool owned = slots_[i].owner == worker_id;
    const bool free_home = i == worker_id && !IsAlive(slots_[i].owner);
    if (owned) {
      Grant(i, worker_id, committed(i) ? step + 1 : step);
    } else if (free_home && !committed(i)) {
      Grant(i, worker_id, step);
    }
  }
}

bool SlotTable::Renew(uint32_t worker_id, absl::Duration now) {
  const auto it = clones_.find(worker_id);
  if (it == clones_.end() || !it->second.registered) return false;
  it->second.alive = true;
  it->second.last_seen = now;
  return true;
}

std::vector<uint32_t> SlotTable::Evict(uint32_t worker_id, const std::string& reason) {
  std::vector<uint32_t> taken;
  Clone& clone = clones_[worker_id];
  if (clone.evicted.has_value()) return taken;
  clone.evicted = reason;
  clone.registered = clone.alive = false;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].owner == worker_id) taken.push_back(i);
  }
  return taken;
}

bool SlotTable::IsEvicted(uint32_t worker_id) const {
  const Clone* clone = Find(worker_id);
  return clone != nullptr && clone->evicted.has_value();
}

std::vector<uint32_t> SlotTable::ExpireLeases(absl::Duration now) {
  std::vector<uint32_t> lost;
  for (auto& [id, clone] : clones_) {
    if (clone.alive && now - clone.last_seen >= lease_) {
      clone.alive = false;
      lost.push_back(id);
    }
  }
  return lost;
}

std::optional<uint32_t> SlotTable::LeastBusy() const {
  std::map<uint32_t, int> slots_of;
  for (const auto& [id, clone] : clones_) {
    if (clone.alive) slots_of[id] = 0;
  }
  for (const Slot& slot : slots_) {
    if (IsAlive(slot.owner)) ++slots_of[*slot.owner];
  }
  const auto least =
      std::min_element(slots_of.begin(), slots_of.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (least == slots_of.end()) return std::nullopt;
  return least->first;
}

std::vector<uint32_t> SlotTable::Reassign(uint64_t step, absl::Duration now,
                                          absl::FunctionRef<bool(uint32_t)> committed) {
  std::vector<uint32_t> changed;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    const bool homeless = IsEvicted(i);
    if (!(reassign_ || homeless) || IsAlive(slots_[i].owner) || committed(i)) continue;
    const std::optional<uint32_t> worker = LeastBusy();
    if (!worker.has_value()) break;
    if (!slots_[i].owner.has_value() && !homeless) {
      // The home clone may be on its way. If it was seen before, it gets one lease to come back; if
      // it was never seen, it is waited for. Only an idle spare takes the replica over at once.
      const bool seen = Find(i) != nullptr && Find(i)->seen;
      const bool idle = *worker >= slots_.size() && GrantsOf(*worker).empty();
      if (!idle && !(seen && now - epoch_start_ >= lease_)) continue;
    }
    Grant(i, *worker, step);
    changed.push_back(i);
  }
  return changed;
}

std::vector<uint32_t> SlotTable::ReturnHome(uint64_t step) {
  std::vector<uint32_t> changed;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].owner == i || !IsAlive(i)) continue;
    Grant(i, i, step);
    changed.push_back(i);
  }
  return changed;
}

std::vector<ps::SlotGrant> SlotTable::GrantsOf(uint32_t worker_id) const {
  std::vector<ps::SlotGrant> grants;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].owner != worker_id) continue;
    ps::SlotGrant grant;
    grant.set_slot(i);
    grant.set_grant(slots_[i].grant);
    grant.set_from_step(slots_[i].from_step);
    grants.push_back(grant);
  }
  return grants;
}

bool SlotTable::HasRoomFor(uint32_t worker_id) {
  if (worker_id < slots_.size() || clones_.contains(worker_id)) return true;
  uint32_t spares = 0;
  auto oldest = clones_.end();
  for (auto it = clones_.lower_bound(num_slots()); it != clones_.end(); ++it) {
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

bool SlotTable::AnyAlive() const {
  return std::any_of(clones_.begin(), clones_.end(), [](const auto& c) { return c.second.alive; });
}

absl::Duration SlotTable::NextWakeup(absl::Duration now) const {
  absl::Duration next = absl::InfiniteDuration();
  for (const auto& [id, clone] : clones_) {
    if (clone.alive) next = std::min(next, clone.last_seen + lease_);
  }
  // Then replicas may move whose homes have not come back after the start of the epoch.
  if (now < epoch_start_ + lease_) next = std::min(next, epoch_start_ + lease_);
  return next;
}

}  // namespace pushpull
