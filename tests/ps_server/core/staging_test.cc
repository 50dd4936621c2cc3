#include "ps_server/core/staging.h"

#include "gtest/gtest.h"

namespace pushpull {
namespace {

EncodedChunk Bytes(size_t size) { return {ps::FLOAT32, {nullptr, nullptr, size}}; }

TEST(Staging, IsCompleteWhenEveryChunkHasArrived) {
  Staging staging(2);
  const ContributionId id{7, 1};
  EXPECT_FALSE(staging.IsComplete(0, id));
  EXPECT_EQ(staging.Add(0, id, 1, 11, Bytes(4)), Staging::Added::kNew);
  EXPECT_FALSE(staging.IsComplete(0, id));
  EXPECT_FALSE(staging.AllChunks(0, id).has_value());
  EXPECT_EQ(staging.Add(0, id, 0, 10, Bytes(8)), Staging::Added::kNew);
  EXPECT_TRUE(staging.IsComplete(0, id));
  EXPECT_FALSE(staging.IsComplete(0, {7, 2}));
  EXPECT_EQ(staging.AllChunks(0, id)->size(), 2u);
  EXPECT_EQ(staging.staged_bytes(), 12);
}

TEST(Staging, RepeatedChunksCountOnceAndTheFirstIsKept) {
  Staging staging(2);
  const ContributionId id{7, 1};
  EXPECT_EQ(staging.Add(0, id, 0, 10, Bytes(4)), Staging::Added::kNew);
  EXPECT_EQ(staging.Add(0, id, 0, 10, Bytes(4)), Staging::Added::kDuplicate);
  EXPECT_EQ(staging.Add(0, id, 0, 99, Bytes(4)), Staging::Added::kConflict);
  EXPECT_EQ(staging.staged_bytes(), 4);
  EXPECT_FALSE(staging.IsComplete(0, id));
}

TEST(Staging, ANewerGrantDropsAndFencesTheOlderOne) {
  Staging staging(1);
  EXPECT_EQ(staging.Add(0, {7, 1}, 0, 10, Bytes(4)), Staging::Added::kNew);
  EXPECT_EQ(staging.Add(0, {8, 1}, 0, 10, Bytes(4)), Staging::Added::kNew);
  EXPECT_EQ(staging.Add(0, {7, 1}, 0, 10, Bytes(4)), Staging::Added::kFenced);
  EXPECT_FALSE(staging.AllChunks(0, {7, 1}).has_value());
  EXPECT_TRUE(staging.AllChunks(0, {8, 1}).has_value());
  EXPECT_EQ(staging.newest_grant(0), 8u);
  EXPECT_EQ(staging.staged_bytes(), 4);
}

TEST(Staging, ALaterNumberDropsAndOutdatesTheEarlierOne) {
  Staging staging(1);
  EXPECT_EQ(staging.Add(3, {7, 4}, 0, 10, Bytes(4)), Staging::Added::kNew);
  EXPECT_EQ(staging.Add(3, {7, 6}, 0, 10, Bytes(4)), Staging::Added::kNew);
  EXPECT_EQ(staging.Add(3, {7, 5}, 0, 10, Bytes(4)), Staging::Added::kOutdated);
  EXPECT_TRUE(staging.AllChunks(3, {7, 6}).has_value());
  EXPECT_EQ(staging.staged_bytes(), 4);
}

TEST(Staging, ANewerGrantMayBeginWithASmallerNumber) {
  Staging staging(1);
  EXPECT_EQ(staging.newest_grant(3), 0u);
  EXPECT_EQ(staging.Add(3, {7, 4}, 0, 10, Bytes(4)), Staging::Added::kNew);
  EXPECT_EQ(staging.Add(3, {8, 1}, 0, 10, Bytes(4)), Staging::Added::kNew);
  EXPECT_TRUE(staging.AllChunks(3, {8, 1}).has_value());
}

TEST(Staging, OnlyTheNamedContributionIsDropped) {
  Staging staging(1);
  staging.Add(3, {7, 4}, 0, 10, Bytes(4));
  staging.Drop(3, {7, 5});
  staging.Drop(2, {7, 4});
  EXPECT_EQ(staging.staged_bytes(), 4);
  staging.Drop(3, {7, 4});
  EXPECT_EQ(staging.staged_bytes(), 0);
}

TEST(Staging, ChunkOfReturnsTheChunkOfTheRequestedNumber) {
  Staging staging(2);
  EXPECT_FALSE(staging.ChunkOf(3, 4, 0).has_value());
  staging.Add(3, {7, 4}, 0, 10, Bytes(8));
  EXPECT_EQ(staging.ChunkOf(3, 4, 0)->payload.size_bytes, 8u);
  EXPECT_FALSE(staging.ChunkOf(3, 4, 1).has_value());
  EXPECT_FALSE(staging.ChunkOf(3, 5, 0).has_value());
  EXPECT_FALSE(staging.ChunkOf(2, 4, 0).has_value());
  staging.DropAll();
  EXPECT_FALSE(staging.ChunkOf(3, 4, 0).has_value());
}

TEST(Staging, DroppingKeepsGrantsButAResetForgetsThem) {
  Staging staging(1);
  staging.Add(0, {7, 1}, 0, 10, Bytes(4));
  staging.Add(1, {8, 1}, 0, 10, Bytes(4));
  staging.Drop(0, {7, 1});
  EXPECT_EQ(staging.staged_bytes(), 4);
  staging.DropAll();
  EXPECT_EQ(staging.staged_bytes(), 0);
  EXPECT_EQ(staging.Add(1, {7, 2}, 0, 10, Bytes(4)), Staging::Added::kFenced);
  staging.Reset();
  EXPECT_EQ(staging.Add(1, {7, 2}, 0, 10, Bytes(4)), Staging::Added::kNew);
}

}  // namespace
}  // namespace pushpull
