#include "ps_server/core/staging.h"

#include <algorithm>

namespace pushpull {

Staging::Added Staging::Add(uint32_t slot_number, const ContributionId& id, uint32_t chunk_number,
                            uint32_t crc32c, const Payload& payload) {
  Slot& slot = slots_[slot_number];
  if (rules_.check_grant_at_shard && id.grant < slot.newest_grant) return Added::kFenced;
  if (!slot.chunks.empty() && !Holds(slot, id)) {
    if (id.grant == slot.id.grant && id.number < slot.id.number) return Added::kOutdated;
    Drop(&slot);
  }
  slot.newest_grant = std::max(slot.newest_grant, id.grant);
  if (slot.chunks.empty()) {
    slot.id = id;
    slot.chunks.resize(num_chunks_);
    slot.arrived_chunks = 0;
    slot.arrival = ++arrivals_;
  }
  ++slot.arrived_chunks;
  Chunk& chunk = slot.chunks[chunk_number];
  if (chunk.present) return chunk.crc32c == crc32c ? Added::kDuplicate : Added::kConflict;
  chunk = {true, crc32c, payload};
  staged_bytes_ += payload.size_bytes;
  return Added::kNew;
}

bool Staging::Holds(const Slot& slot, const ContributionId& id) const {
  if (slot.chunks.empty() || slot.id.grant != id.grant) return false;
  return slot.id.number == id.number || !rules_.clear_staging;
}

const Staging::Slot* Staging::Find(uint32_t slot_number, const ContributionId& id) const {
  const auto it = slots_.find(slot_number);
  return it != slots_.end() && Holds(it->second, id) ? &it->second : nullptr;
}

std::vector<uint32_t> Staging::Missing(uint32_t slot_number, const ContributionId& id) const {
  const Slot* slot = Find(slot_number, id);
  std::vector<uint32_t> missing;
  if (!rules_.dedupe_chunks && slot != nullptr && slot->arrived_chunks >= num_chunks_) {
    return missing;
  }
  for (int i = 0; i < num_chunks_; ++i) {
    if (slot == nullptr || !slot->chunks[i].present) missing.push_back(i);
  }
  return missing;
}

std::optional<std::vector<Payload>> Staging::Complete(uint32_t slot_number,
                                                      const ContributionId& id) const {
  const Slot* slot = Find(slot_number, id);
  if (slot == nullptr) return std::nullopt;
  std::vector<Payload> payloads;
  for (const Chunk& chunk : slot->chunks) {
    if (!chunk.present) return std::nullopt;
    payloads.push_back(chunk.payload);
  }
  return payloads;
}

std::optional<Payload> Staging::ChunkOf(uint32_t slot_number, uint64_t number,
                                        uint32_t chunk) const {
  const auto it = slots_.find(slot_number);
  if (it == slots_.end() || it->second.chunks.empty() || it->second.id.number != number ||
      !it->second.chunks[chunk].present) {
    return std::nullopt;
  }
  return it->second.chunks[chunk].payload;
}

uint64_t Staging::newest_grant(uint32_t slot) const {
  const auto it = slots_.find(slot);
  return it == slots_.end() ? 0 : it->second.newest_grant;
}

int64_t Staging::ArrivalOrder(uint32_t slot) const {
  const auto it = slots_.find(slot);
  return it == slots_.end() ? 0 : it->second.arrival;
}

void Staging::DropAll() {
  for (auto& [number, slot] : slots_) Drop(&slot);
}

void Staging::Drop(uint32_t slot_number, const ContributionId& id) {
  const auto it = slots_.find(slot_number);
  if (it != slots_.end() && Holds(it->second, id)) Drop(&it->second);
}

void Staging::Drop(Slot* slot) {
  for (const Chunk& chunk : slot->chunks) staged_bytes_ -= chunk.payload.size_bytes;
  slot->chunks.clear();
}

void Staging::Reset() {
  slots_.clear();
  staged_bytes_ = 0;
}

}  // namespace pushpull
