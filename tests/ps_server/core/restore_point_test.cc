#include "ps_server/core/restore_point.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ps::ShardStateReply Shard(const std::string& run_id, const std::vector<VersionId>& held) {
  ps::ShardStateReply state;
  state.set_run_id(run_id);
  for (const VersionId& id : held) {
    ps::HeldVersion& version = *state.add_held();
    version.set_epoch(id.epoch);
    version.set_version(id.version);
  }
  return state;
}

// Returns the ids of versions that were all made in one epoch.
std::vector<VersionId> OfEpoch(uint64_t epoch, const std::vector<uint64_t>& versions) {
  std::vector<VersionId> held;
  for (const uint64_t version : versions) held.push_back({epoch, version});
  return held;
}

constexpr VersionId kCheckpoint{5, 8};  // step 8, published in epoch 5

TEST(ChooseRestorePoint, TakesTheHighestVersionThatAllShardsHold) {
  const RestorePoint point = ChooseRestorePoint(
      "run", {Shard("run", OfEpoch(5, {9, 10})), Shard("run", OfEpoch(5, {10, 11}))}, kCheckpoint,
      10);
  EXPECT_EQ(point.source, ps::RestoreRequest::MAPPED);
  EXPECT_EQ(point.id, (VersionId{5, 10}));
  EXPECT_EQ(point.rolled_back_steps, 1u);
}

TEST(ChooseRestorePoint, TakesTheCheckpointWhenAShardHasLostItsMemory) {
  const RestorePoint point =
      ChooseRestorePoint("run", {Shard("run", OfEpoch(5, {9, 10})), Shard("", {})}, kCheckpoint, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::CHECKPOINT);
  EXPECT_EQ(point.id, kCheckpoint);
  EXPECT_EQ(point.rolled_back_steps, 2u);
}

TEST(ChooseRestorePoint, DoesNotMixRuns) {
  const RestorePoint point = ChooseRestorePoint(
      "run", {Shard("run", OfEpoch(5, {10})), Shard("older run", OfEpoch(5, {10}))}, kCheckpoint,
      0);
  EXPECT_EQ(point.source, ps::RestoreRequest::CHECKPOINT);
}

TEST(ChooseRestorePoint, DoesNotMixHistoriesWithTheSameVersionNumbers) {
  // While task 1 was on another machine, epoch 6 made the versions of epoch 4 again. Task 1 is now
  // back at its old file.
  const std::vector<ps::ShardStateReply> shards = {
      Shard("run", {{5, 9}, {6, 10}}),
      Shard("run", {{4, 9}, {4, 10}}),
  };
  RestorePoint point = ChooseRestorePoint("run", shards, VersionId{4, 8}, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::CHECKPOINT);
  EXPECT_EQ(point.id, (VersionId{4, 8}));
  EXPECT_EQ(point.rolled_back_steps, 2u);
  EXPECT_THAT(point.warnings,
              ElementsAre(AllOf(HasSubstr("shard 0"), HasSubstr("version 10 of epoch 6")),
                          AllOf(HasSubstr("shard 1"), HasSubstr("version 10 of epoch 4"))));
  point = ChooseRestorePoint("run", shards, std::nullopt, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::INITIAL);
  EXPECT_EQ(point.id, VersionId());
  EXPECT_EQ(point.rolled_back_steps, 10u);
}

TEST(ChooseRestorePoint, EqualVersionNumbersOfDifferentEpochsDoNotMatch) {
  const RestorePoint point = ChooseRestorePoint(
      "run", {Shard("run", {{5, 9}, {7, 10}}), Shard("run", {{5, 9}, {6, 10}})}, kCheckpoint, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::MAPPED);
  EXPECT_EQ(point.id, (VersionId{5, 9}));
}

TEST(ChooseRestorePoint, PrefersTheCheckpointToAHigherVersionOfAnOlderHistory) {
  // All tasks have returned to machines that the job left in epoch 4.
  const ps::ShardStateReply stale = Shard("run", OfEpoch(4, {11, 12}));
  const RestorePoint point = ChooseRestorePoint("run", {stale, stale}, kCheckpoint, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::CHECKPOINT);
  EXPECT_EQ(point.id, kCheckpoint);
  EXPECT_EQ(point.rolled_back_steps, 0u) << "steps of an abandoned history do not count as lost";
  ASSERT_EQ(point.warnings.size(), 2u);
  for (const char* const part : {"version 12 of epoch 4", "step 8", "epoch 5", "older history"}) {
    EXPECT_THAT(point.warnings[1], HasSubstr(part));
  }
}

TEST(ChooseRestorePoint, NeverGoesBelowTheCheckpoint) {
  const RestorePoint point =
      ChooseRestorePoint("run", {Shard("run", OfEpoch(6, {6, 7}))}, kCheckpoint, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::CHECKPOINT);
  EXPECT_EQ(point.id, kCheckpoint);
  EXPECT_EQ(point.rolled_back_steps, 0u);
}

TEST(ChooseRestorePoint, TakesTheCheckpointsVersionFromMemoryIfItIsHeld) {
  RestorePoint point =
      ChooseRestorePoint("run", {Shard("run", OfEpoch(5, {7, 8}))}, kCheckpoint, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::MAPPED);
  EXPECT_EQ(point.id, kCheckpoint);
  EXPECT_THAT(point.warnings, IsEmpty());
  // The same version number of an older epoch may stand for other variables.
  point = ChooseRestorePoint("run", {Shard("run", OfEpoch(4, {7, 8}))}, kCheckpoint, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::CHECKPOINT);
}

TEST(ChooseRestorePoint, AVersionMadeAgainDiffersFromTheCheckpoints) {
  // The checkpoint was published late, by a server of epoch 5 that had been frozen.
  const RestorePoint point =
      ChooseRestorePoint("run", {Shard("run", OfEpoch(6, {7, 8}))}, kCheckpoint, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::CHECKPOINT) << "version 8 was made again";
  EXPECT_THAT(point.warnings, ElementsAre(AllOf(HasSubstr("version 8 of epoch 6"),
                                                HasSubstr("published in epoch 5"))));
}

TEST(ChooseRestorePoint, StartsFromScratchOnlyWhenNothingIsLeft) {
  RestorePoint point = ChooseRestorePoint("run", {Shard("", {})}, std::nullopt, 0);
  EXPECT_EQ(point.source, ps::RestoreRequest::INITIAL);
  EXPECT_EQ(point.id, VersionId());
  // Version 4 is known to have existed, but not all shards hold a version. Every step is computed
  // again, and the restore point reports how many.
  point =
      ChooseRestorePoint("run", {Shard("run", OfEpoch(1, {3})), Shard("", {})}, std::nullopt, 4);
  EXPECT_EQ(point.source, ps::RestoreRequest::INITIAL);
  EXPECT_EQ(point.rolled_back_steps, 4u);
}

}  // namespace
}  // namespace pushpull
