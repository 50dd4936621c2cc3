#include "common/model/sharding.h"

#include <vector>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr int64_t kLarge = Sharding::kChunkElements;

TEST(ChunkRangeTest, TheFirstFourAreTogetherAsLargeAsEachOther) {
  const int64_t elements = 3 * kLarge + 5;
  const std::vector<int64_t> begins = {0,      kLarge / 8, kLarge / 4, kLarge / 2,
                                       kLarge, 2 * kLarge, 3 * kLarge, elements};
  ASSERT_EQ(NumChunks(elements), static_cast<int>(begins.size()) - 1);
  for (int chunk = 0; chunk < NumChunks(elements); ++chunk) {
    EXPECT_EQ(ChunkRange(elements, chunk), (ElementRange{begins[chunk], begins[chunk + 1]}))
        << chunk;
  }
}

TEST(ChunkRangeTest, EveryElementIsInOneChunkAndChunkOfFindsIt) {
  for (const int64_t elements :
       {int64_t{1}, int64_t{7}, kLarge / 8 - 1, kLarge / 8, kLarge / 8 + 1, kLarge / 2, kLarge - 1,
        kLarge, kLarge + 1, 2 * kLarge, 5 * kLarge + 1}) {
    int64_t next = 0;
    for (int chunk = 0; chunk < NumChunks(elements); ++chunk) {
      const ElementRange range = ChunkRange(elements, chunk);
      EXPECT_EQ(range.begin, next);
      EXPECT_GT(range.size(), 0) << elements << " " << chunk;
      EXPECT_LE(range.size(), kLarge);
      EXPECT_EQ(ChunkOf(range.begin), chunk);
      EXPECT_EQ(ChunkOf(range.end - 1), chunk);
      next = range.end;
    }
    EXPECT_EQ(next, elements);
  }
}

TEST(ChunkRangeTest, AnEmptyShardIsOneEmptyChunk) {
  EXPECT_EQ(NumChunks(0), 1);
  EXPECT_EQ(ChunkRange(0, 0).size(), 0);
}

TEST(ShardingTest, EveryShardIsCutFromItsFirstElement) {
  const int64_t total = 2 * kLarge + 3 * Sharding::kPageElements + 1;
  for (const int tasks : {1, 2, 3, 7}) {
    const Sharding sharding(total, tasks);
    int64_t next = 0;
    for (int shard = 0; shard < tasks; ++shard) {
      for (int chunk = 0; chunk < sharding.num_chunks(shard); ++chunk) {
        const ElementRange range = sharding.chunk(shard, chunk);
        EXPECT_EQ(range.begin, next);
        next = range.end;
      }
      EXPECT_EQ(next, sharding.shard(shard).end);
    }
    EXPECT_EQ(next, total);
  }
}

}  // namespace
}  // namespace pushpull
