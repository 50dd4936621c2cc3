#include "common/rpc/checksum_cache.h"

#include "common/crc32c.h"
#include "common/sharding.h"

namespace pushpull {
namespace {

constexpr uint64_t kKnown = uint64_t{1} << 32;

PullSnapshot WithoutOwner(PullSnapshot snapshot) {
  snapshot.payload.owner = nullptr;
  return snapshot;
}

}  // namespace

SnapshotChecksums::SnapshotChecksums(const PullSnapshot& snapshot)
    : snapshot_(WithoutOwner(snapshot)),
      known_(NumChunks(static_cast<int64_t>(snapshot.payload.size_bytes / sizeof(float)))) {}

uint32_t SnapshotChecksums::Get(uint32_t chunk) {
  {
    absl::MutexLock lock(&mutex_);
    if (known_[chunk] & kKnown) return static_cast<uint32_t>(known_[chunk]);
  }
  const Payload payload = ChunkOfSnapshot(snapshot_, static_cast<int>(chunk));
  const uint32_t crc = Crc32c(payload.data, payload.size_bytes);
  absl::MutexLock lock(&mutex_);
  known_[chunk] = kKnown | crc;
  return crc;
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
