#include "ps_server/transport/checksum_cache.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "common/model/sharding.h"

namespace pushpull {
namespace {

PullSnapshot SnapshotOf(const std::vector<float>& values, uint64_t version) {
  PullSnapshot snapshot;
  snapshot.epoch = 1;
  snapshot.version = version;
  snapshot.payload.data = reinterpret_cast<const char*>(values.data());
  snapshot.payload.size_bytes = values.size() * sizeof(float);
  return snapshot;
}

TEST(ChecksumCacheTest, ChecksumsAreThoseOfTheChunks) {
  std::vector<float> values(Sharding::kFirstChunkElements + 10, 1.5f);
  const PullSnapshot snapshot = SnapshotOf(values, 1);
  ChecksumCache cache;
  const auto checksums = cache.For(snapshot);
  for (int chunk = 0; chunk < 2; ++chunk) {
    const Payload payload = ChunkOfSnapshot(snapshot, chunk);
    const uint32_t expected = Crc32c(payload.data, payload.size_bytes);
    // Copied before the checksum is known and after it.
    for (int i = 0; i < 2; ++i) {
      std::string copy(payload.size_bytes, '\0');
      EXPECT_EQ(checksums->Copy(chunk, copy.data()), expected);
      EXPECT_EQ(copy, std::string(payload.data, payload.size_bytes));
    }
    EXPECT_EQ(checksums->Get(chunk), expected);
  }
  // Known checksums are not computed again, even if the memory has changed.
  const uint32_t before = checksums->Get(0);
  values[0] = 2;
  EXPECT_EQ(checksums->Get(0), before);
}

TEST(ChecksumCacheTest, OnlyTheSameSnapshotSharesItsChecksums) {
  const std::vector<float> values(10), others(10);
  ChecksumCache cache;
  const PullSnapshot snapshot = SnapshotOf(values, 1);
  const auto first = cache.For(snapshot);
  EXPECT_EQ(cache.For(snapshot), first);
  EXPECT_NE(cache.For(SnapshotOf(values, 2)), first);
  EXPECT_NE(cache.For(SnapshotOf(others, 1)), first);
  PullSnapshot changed = snapshot;
  changed.epoch = 2;
  EXPECT_NE(cache.For(changed), first);
  changed = snapshot;
  changed.shard = 1;
  EXPECT_NE(cache.For(changed), first);
  changed = snapshot;
  changed.payload.size_bytes -= sizeof(float);
  EXPECT_NE(cache.For(changed), first);
  EXPECT_EQ(cache.For(snapshot), first);
}

TEST(ChecksumCacheTest, TheOldestEntryMakesRoomAndNothingKeepsTheBytes) {
  const std::vector<float> values(10);
  ChecksumCache cache;
  PullSnapshot snapshot = SnapshotOf(values, 0);
  const auto owner = std::make_shared<std::string>("owner");
  snapshot.payload.owner = owner;
  const auto oldest = cache.For(snapshot);
  for (uint64_t version = 1; version < 8; ++version) cache.For(SnapshotOf(values, version));
  EXPECT_EQ(cache.For(snapshot), oldest);
  const auto second = cache.For(SnapshotOf(values, 1));
  cache.For(SnapshotOf(values, 8));
  EXPECT_EQ(cache.For(SnapshotOf(values, 1)), second);
  EXPECT_NE(cache.For(snapshot), oldest);
  snapshot.payload.owner = nullptr;
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace pushpull
