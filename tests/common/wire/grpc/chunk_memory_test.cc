#include "common/wire/grpc/chunk_memory.h"

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/sharding.h"

namespace pushpull {
namespace {

constexpr size_t kChunk = Sharding::kChunkBytes;

TEST(ChunkMemoryTest, ReusesReleasedMemory) {
  std::set<char*> first;
  {
    std::vector<std::shared_ptr<char[]>> held;
    for (int i = 0; i < 5; ++i) {
      held.push_back(TakeChunkMemory(kChunk));
      std::memset(held.back().get(), i, kChunk);
      first.insert(held.back().get());
    }
    EXPECT_EQ(first.size(), 5u);
  }
  std::vector<std::shared_ptr<char[]>> held;
  for (int i = 0; i < 5; ++i) {
    held.push_back(TakeChunkMemory(kChunk - 100));
    EXPECT_EQ(first.count(held.back().get()), 1u);
  }
}

// A small chunk must not use up the memory of a large one, and a large chunk must not get a small
// block.
TEST(ChunkMemoryTest, EachSizeOfChunkHasItsOwnBlocks) {
  const std::vector<size_t> sizes = {kChunk / 16, kChunk / 8, kChunk / 4, kChunk / 2, kChunk};
  std::set<char*> smaller;
  for (const size_t size : sizes) {
    char* first = nullptr;
    {
      const auto memory = TakeChunkMemory(size);
      std::memset(memory.get(), 1, size);
      first = memory.get();
    }
    EXPECT_EQ(TakeChunkMemory(size).get(), first) << size;
    if (size > kChunk / 8) {
      EXPECT_EQ(smaller.count(first), 0u) << size;
    }
    smaller.insert(first);
  }
}

TEST(ChunkMemoryTest, DoesNotKeepBlocksOfOtherSizes) {
  char* kept = nullptr;
  {
    const auto chunk = TakeChunkMemory(kChunk);
    kept = chunk.get();
  }
  const auto small = TakeChunkMemory(1000);
  const auto large = TakeChunkMemory(kChunk + 1);
  std::memset(small.get(), 1, 1000);
  std::memset(large.get(), 1, kChunk + 1);
  EXPECT_NE(small.get(), kept);
  EXPECT_NE(large.get(), kept);
  EXPECT_NE(TakeChunkMemory(0), nullptr);
}

TEST(ChunkMemoryTest, BlocksInUseNeverOverlap) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 200; ++i) {
        const auto a = TakeChunkMemory(kChunk);
        const auto b = TakeChunkMemory(kChunk);
        std::memset(a.get(), 2 * t, 4096);
        std::memset(b.get(), 2 * t + 1, 4096);
        for (int k = 0; k < 4096; k += 512) {
          ASSERT_EQ(a[k], 2 * t);
          ASSERT_EQ(b[k], 2 * t + 1);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace pushpull
