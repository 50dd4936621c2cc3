#include "ps_server/runtime/version_ahead.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const char kBytes[4][8] = {};

EncodedChunk At(int i) { return {ps::FLOAT32, {nullptr, kBytes[i], 8}}; }

class VersionAheadTest : public ::testing::Test {
 protected:
  // Chunks 0 and 1: replica 3 contributes kBytes 0 and 1, replica 5 contributes kBytes 2 and 3.
  const std::vector<StagedContribution> contributions_ = {{3, 16, {At(0), At(1)}},
                                                          {5, 15, {At(2), At(3)}}};
  VersionAhead ahead_{VariableStore::ApplyBuffers{}, 2};
};

TEST_F(VersionAheadTest, KeepsChunksMadeFromTheSameBytes) {
  EXPECT_THAT(ahead_.ChunksToMake(contributions_), ElementsAre(0, 1));
  ahead_.NoteMade({7, 1, {{3, 16, At(1)}, {5, 15, At(3)}}});
  EXPECT_THAT(ahead_.ChunksToMake(contributions_), ElementsAre(0));
  ahead_.NoteMade({7, 0, {{3, 16, At(0)}, {5, 15, At(2)}}});
  EXPECT_THAT(ahead_.ChunksToMake(contributions_), IsEmpty());
}

TEST_F(VersionAheadTest, MakesChunksAgainThatCameFromOtherBytes) {
  for (const std::vector<StagedChunk>& other : std::vector<std::vector<StagedChunk>>{
           {{3, 16, At(0)}},                                 // a contribution is missing
           {{3, 16, At(0)}, {5, 15, At(2)}, {6, 1, At(3)}},  // one contribution too many
           {{3, 16, At(1)}, {5, 15, At(2)}},                 // other bytes
           {{3, 17, At(0)}, {5, 15, At(2)}},                 // another weight
           {{4, 16, At(0)}, {5, 15, At(2)}}}) {              // another replica
    ahead_.NoteMade({7, 0, other});
    EXPECT_THAT(ahead_.ChunksToMake(contributions_), ElementsAre(0, 1));
  }
}

TEST_F(VersionAheadTest, IgnoresContributionsWithoutSamples) {
  std::vector<StagedContribution> contributions = contributions_;
  contributions[0].samples = 0;
  ahead_.NoteMade({7, 0, {{5, 15, At(2)}}});
  EXPECT_THAT(ahead_.ChunksToMake(contributions), ElementsAre(1));
}

TEST_F(VersionAheadTest, KeepsTheBytesOfItsContributionsAlive) {
  auto owner = std::make_shared<int>(0);
  shard_action::StoreApplyAhead order{7, 0, {{3, 16, {ps::FLOAT32, {owner, kBytes[0], 8}}}}};
  ahead_.NoteMade(order);
  order.contributions.clear();
  EXPECT_EQ(owner.use_count(), 2);
}

}  // namespace
}  // namespace pushpull
