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
  const auto checksums = cache.For(snapshot, &Float32Codec());
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

TEST(ChecksumCacheTest, EncodesChunksAndCountsTheEncodedBytes) {
  std::vector<float> values(Sharding::kFirstChunkElements + 10);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f / static_cast<float>(i + 1);
  const PullSnapshot snapshot = SnapshotOf(values, 1);
  ChecksumCache cache;
  const auto checksums = cache.For(snapshot, &Bfloat16Codec());
  for (int chunk = 0; chunk < 2; ++chunk) {
    const ElementRange range = ChunkRange(static_cast<int64_t>(values.size()), chunk);
    std::string expected(2 * range.size(), '\0');
    Bfloat16Codec().Encode(absl::MakeConstSpan(values).subspan(range.begin, range.size()),
                           expected.data());
    ASSERT_EQ(checksums->EncodedBytes(chunk), expected.size());
    // Encoded before the checksum is known and after it.
    for (int i = 0; i < 2; ++i) {
      std::string copy(expected.size(), '\0');
      EXPECT_EQ(checksums->Copy(chunk, copy.data()), Crc32c(expected));
      EXPECT_EQ(copy, expected);
    }
  }
}

TEST(ChecksumCacheTest, OnlyTheSameSnapshotSharesItsChecksums) {
  const std::vector<float> values(10), others(10);
  ChecksumCache cache;
  const PullSnapshot snapshot = SnapshotOf(values, 1);
  const auto first = cache.For(snapshot, &Float32Codec());
  EXPECT_EQ(cache.For(snapshot, &Float32Codec()), first);
  EXPECT_NE(cache.For(SnapshotOf(values, 2), &Float32Codec()), first);
  EXPECT_NE(cache.For(SnapshotOf(others, 1), &Float32Codec()), first);
  PullSnapshot changed = snapshot;
  changed.epoch = 2;
  EXPECT_NE(cache.For(changed, &Float32Codec()), first);
  changed = snapshot;
  changed.shard = 1;
  EXPECT_NE(cache.For(changed, &Float32Codec()), first);
  EXPECT_NE(cache.For(snapshot, &Bfloat16Codec()), first);
  changed = snapshot;
  changed.payload.size_bytes -= sizeof(float);
  EXPECT_NE(cache.For(changed, &Float32Codec()), first);
  EXPECT_EQ(cache.For(snapshot, &Float32Codec()), first);
}

TEST(ChecksumCacheTest, TheOldestEntryMakesRoomAndNothingKeepsTheBytes) {
  const std::vector<float> values(10);
  ChecksumCache cache;
  PullSnapshot snapshot = SnapshotOf(values, 0);
  const auto owner = std::make_shared<std::string>("owner");
  snapshot.payload.owner = owner;
  const auto oldest = cache.For(snapshot, &Float32Codec());
  for (uint64_t version = 1; version < 8; ++version)
    cache.For(SnapshotOf(values, version), &Float32Codec());
  EXPECT_EQ(cache.For(snapshot, &Float32Codec()), oldest);
  const auto second = cache.For(SnapshotOf(values, 1), &Float32Codec());
  cache.For(SnapshotOf(values, 8), &Float32Codec());
  EXPECT_EQ(cache.For(SnapshotOf(values, 1), &Float32Codec()), second);
  EXPECT_NE(cache.For(snapshot, &Float32Codec()), oldest);
  snapshot.payload.owner = nullptr;
  EXPECT_EQ(owner.use_count(), 1);
}

}  // namespace
}  // namespace pushpull
