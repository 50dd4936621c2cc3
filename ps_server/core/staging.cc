#include "ps_server/core/staging.h"

#include <algorithm>

namespace pushpull {

Staging::Added Staging::Add(uint32_t replica_number, const ContributionId& id,
                            uint32_t chunk_number, uint32_t crc32c, const EncodedChunk& encoded) {
  Replica& replica = replicas_[replica_number];
  if (id.grant < replica.newest_grant) return Added::kFenced;
  if (!replica.chunks.empty() && !Holds(replica, id)) {
    if (id.grant == replica.id.grant && id.number < replica.id.number) return Added::kOutdated;
    Drop(&replica);
  }
  replica.newest_grant = std::max(replica.newest_grant, id.grant);
  if (replica.chunks.empty()) {
    replica.id = id;
    replica.chunks.resize(num_chunks_);
  }
  Chunk& chunk = replica.chunks[chunk_number];
  if (chunk.present) return chunk.crc32c == crc32c ? Added::kDuplicate : Added::kConflict;
  chunk = {true, crc32c, encoded};
  staged_bytes_ += encoded.payload.size_bytes;
  return Added::kNew;
}

bool Staging::Holds(const Replica& replica, const ContributionId& id) const {
  return !replica.chunks.empty() && replica.id == id;
}

const Staging::Replica* Staging::Find(uint32_t replica_number, const ContributionId& id) const {
  const auto it = replicas_.find(replica_number);
  return it != replicas_.end() && Holds(it->second, id) ? &it->second : nullptr;
}

bool Staging::IsComplete(uint32_t replica_number, const ContributionId& id) const {
  const Replica* replica = Find(replica_number, id);
  return replica != nullptr && std::all_of(replica->chunks.begin(), replica->chunks.end(),
                                           [](const Chunk& chunk) { return chunk.present; });
}

std::optional<std::vector<EncodedChunk>> Staging::AllChunks(uint32_t replica_number,
                                                            const ContributionId& id) const {
  if (!IsComplete(replica_number, id)) return std::nullopt;
  std::vector<EncodedChunk> chunks;
  for (const Chunk& chunk : Find(replica_number, id)->chunks) chunks.push_back(chunk.encoded);
  return chunks;
}

std::optional<EncodedChunk> Staging::ChunkOf(uint32_t replica_number, uint64_t number,
                                             uint32_t chunk) const {
  const auto it = replicas_.find(replica_number);
  if (it == replicas_.end() || it->second.chunks.empty() || it->second.id.number != number ||
      !it->second.chunks[chunk].present) {
    return std::nullopt;
  }
  return it->second.chunks[chunk].encoded;
}

uint64_t Staging::newest_grant(uint32_t replica) const {
  const auto it = replicas_.find(replica);
  return it == replicas_.end() ? 0 : it->second.newest_grant;
}

void Staging::DropAll() {
  for (auto& [number, replica] : replicas_) Drop(&replica);
}

void Staging::Drop(uint32_t replica_number, const ContributionId& id) {
  const auto it = replicas_.find(replica_number);
  if (it != replicas_.end() && Holds(it->second, id)) Drop(&it->second);
}

void Staging::Drop(Replica* replica) {
  for (const Chunk& chunk : replica->chunks) staged_bytes_ -= chunk.encoded.payload.size_bytes;
  replica->chunks.clear();
}

void Staging::Reset() {
  replicas_.clear();
  staged_bytes_ = 0;
}

}  // namespace pushpull
