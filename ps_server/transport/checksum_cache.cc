#include "ps_server/transport/checksum_cache.h"

#include "absl/types/span.h"
#include "glog/logging.h"

#include "common/base/crc32c.h"
#include "common/model/sharding.h"

namespace pushpull {
namespace {

PullSnapshot WithoutOwner(PullSnapshot snapshot) {
  snapshot.payload.owner = nullptr;
  return snapshot;
}

absl::Span<const float> FloatsOf(const Payload& chunk) {
  return {reinterpret_cast<const float*>(chunk.data), chunk.size_bytes / sizeof(float)};
}

}  // namespace

SnapshotChecksums::SnapshotChecksums(const PullSnapshot& snapshot, const GradientCodec* codec)
    : snapshot_(WithoutOwner(snapshot)),
      codec_(codec),
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

size_t SnapshotChecksums::EncodedBytes(uint32_t chunk) const {
  return codec_->EncodedBytes(FloatsOf(ChunkOfSnapshot(snapshot_, static_cast<int>(chunk))).size());
}

uint32_t SnapshotChecksums::Get(uint32_t chunk) {
  CHECK(codec_->is_float32());
  if (const std::optional<uint32_t> known = Find(chunk)) return *known;
  const Payload payload = ChunkOfSnapshot(snapshot_, static_cast<int>(chunk));
  return Keep(chunk, Crc32c(payload.data, payload.size_bytes));
}

uint32_t SnapshotChecksums::Copy(uint32_t chunk, char* to) {
  const Payload payload = ChunkOfSnapshot(snapshot_, static_cast<int>(chunk));
  const std::optional<uint32_t> known = Find(chunk);
  if (known.has_value() || !codec_->is_float32()) {
    codec_->Encode(FloatsOf(payload), to);
    return known.has_value() ? *known : Keep(chunk, Crc32c(to, EncodedBytes(chunk)));
  }
  return Keep(chunk, CopyWithCrc32c(payload.data, payload.size_bytes, to));
}

bool SnapshotChecksums::IsOf(const PullSnapshot& snapshot, const GradientCodec* codec) const {
  return codec_ == codec && snapshot_.epoch == snapshot.epoch &&
         snapshot_.version == snapshot.version && snapshot_.shard == snapshot.shard &&
         snapshot_.payload.data == snapshot.payload.data &&
         snapshot_.payload.size_bytes == snapshot.payload.size_bytes;
}

std::shared_ptr<SnapshotChecksums> ChecksumCache::For(const PullSnapshot& snapshot,
                                                      const GradientCodec* codec) {
  absl::MutexLock lock(&mutex_);
  for (const auto& entry : entries_) {
    if (entry->IsOf(snapshot, codec)) return entry;
  }
  auto entry = std::make_shared<SnapshotChecksums>(snapshot, codec);
  if (entries_.size() < kEntries) {
    entries_.push_back(entry);
  } else {
    entries_[next_] = entry;
    next_ = (next_ + 1) % kEntries;
  }
  return entry;
}

}  // namespace pushpull
