#include "ps_server/transport/checksum_cache.h"

#include <cstring>

#include "common/base/crc32c.h"
#include "common/model/sharding.h"

namespace pushpull {
namespace {

PullSnapshot WithoutOwner(PullSnapshot snapshot) {
  snapshot.payload.owner = nullptr;
  return snapshot;
}

}  // namespace

SnapshotChecksums::SnapshotChecksums(const PullSnapshot& snapshot)
    : snapshot_(WithoutOwner(snapshot)),
      known_(NumChunks(static_cast<int64_t>(snapshot.payload.size_bytes / sizeof(float)))) {}

std::optional<uint32_t> SnapshotChecksums::Find(uint32_t chunk) {
  absl::MutexLock lock(&mutex_);
  return known_[chunk];
}

uint32_t SnapshotChecksums::Keep(uint32_t chunk, uint32_t crc) {
  absl::MutexLock lock(&mutex_);
  known_[chunk] = crc;
  return crc;
}

uint32_t SnapshotChecksums::Get(uint32_t chunk) {
  if (const std::optional<uint32_t> known = Find(chunk)) return *known;
  const Payload payload = ChunkOfSnapshot(snapshot_, static_cast<int>(chunk));
  return Keep(chunk, Crc32c(payload.data, payload.size_bytes));
}

uint32_t SnapshotChecksums::Copy(uint32_t chunk, char* to) {
  const Payload payload = ChunkOfSnapshot(snapshot_, static_cast<int>(chunk));
  if (const std::optional<uint32_t> known = Find(chunk)) {
    std::memcpy(to, payload.data, payload.size_bytes);
    return *known;
  }
  return Keep(chunk, CopyWithCrc32c(payload.data, payload.size_bytes, to));
}

bool SnapshotChecksums::IsOf(const PullSnapshot& snapshot) const {
  return snapshot_.epoch == snapshot.epoch && snapshot_.version == snapshot.version &&
         snapshot_.shard == snapshot.shard && snapshot_.payload.data == snapshot.payload.data &&
         snapshot_.payload.size_bytes == snapshot.payload.size_bytes;
}

std::shared_ptr<SnapshotChecksums> ChecksumCache::For(const PullSnapshot& snapshot) {
  absl::MutexLock lock(&mutex_);
  for (const auto& entry : entries_) {
    if (entry->IsOf(snapshot)) return entry;
  }
  auto entry = std::make_shared<SnapshotChecksums>(snapshot);
  if (entries_.size() < kEntries) {
    entries_.push_back(entry);
  } else {
    entries_[next_] = entry;
    next_ = (next_ + 1) % kEntries;
  }
  return entry;
}

}  // namespace pushpull
