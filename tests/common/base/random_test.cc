#include "common/base/random.h"

#include <array>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

using Words = std::array<uint32_t, 4>;

// Known answers of the authors' library Random123 for philox4x32 with ten rounds.
TEST(RandomTest, PhiloxGivesThePublishedWords) {
  EXPECT_EQ(Philox4x32({}, {}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomTest, HashesAreThoseOfFnv1a) {
  EXPECT_EQ(StableHash(""), 0xcbf29ce484222325);
  EXPECT_EQ(StableHash("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(StableHash("\xff"), 0xaf64724c8602eb6e);
}

// The layout is part of every run's results: the stream is the upper half of the counter.
TEST(RandomTest, DrawsAreTheWordsOfTheirCounters) {
  constexpr uint64_t kSeed = 0x1122334455667788;
  constexpr uint64_t kStream = 0x99aabbccddeeff00;
  CounterRandom random(kSeed, kStream);
  for (uint32_t counter = 0; counter < 3; ++counter) {
    const Words words = Philox4x32({counter, 0, 0xddeeff00, 0x99aabbcc}, {0x55667788, 0x11223344});
    EXPECT_EQ(random.NextUint32(), words[0]);
    EXPECT_EQ(random.NextUint64(), words[1] | static_cast<uint64_t>(words[2]) << 32);
    EXPECT_EQ(random.NextFloat(), static_cast<float>(words[3] >> 8) / 16777216.0f);
  }
}

TEST(RandomTest, NumbersBelowABoundReachBothEnds) {
  CounterRandom random(1, 2);
  std::array<int, 3> counts = {};
  for (int i = 0; i < 3000; ++i) ++counts.at(random.NextBelow(3));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace pushpull
