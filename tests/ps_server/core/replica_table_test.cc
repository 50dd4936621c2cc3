#include "ps_server/core/replica_table.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kLeaseTime = absl::Seconds(10);

class ReplicaTableTest : public testing::Test {
 protected:
  ReplicaTableTest() { table_.SetNumReplicas(3); }

  void Begin(uint64_t epoch) { table_.BeginEpoch(epoch, now_); }
  void Register(uint32_t worker, uint64_t step = 1) {
    table_.Register(worker, "host", step, now_, Nobody);
  }
  std::vector<uint32_t> ReplicasOf(uint32_t worker) const {
    std::vector<uint32_t> replicas;
    for (const ps::ReplicaGrant& grant : table_.GrantsOf(worker)) {
      replicas.push_back(grant.replica());
    }
    return replicas;
  }
  std::vector<uint32_t> Reassign() { return table_.Reassign(1, now_, Nobody); }
  static bool Nobody(uint32_t) { return false; }
  static bool Everybody(uint32_t) { return true; }

  absl::Duration now_ = absl::Seconds(100);
  ReplicaTable table_{kLeaseTime, /*reassign=*/true};
};

TEST_F(ReplicaTableTest, TheNumberOfReplicasIsSetOnce) {
  table_.SetNumReplicas(5);
  EXPECT_EQ(table_.num_replicas(), 3u);
}

TEST_F(ReplicaTableTest, ANewDivisionLeavesReplicasWithoutAnOwnerFree) {
  Begin(1);
  Register(0);
  table_.Divide(5, 2);
  EXPECT_EQ(table_.replica(0).from_step, 2u);
  for (const uint32_t replica : {1, 4}) {
    EXPECT_FALSE(table_.replica(replica).owner.has_value()) << replica;
    EXPECT_EQ(table_.replica(replica).grant, 0u) << replica;
  }
  table_.Divide(2, 3);
  EXPECT_EQ(table_.most_replicas(), 5u);
}

TEST_F(ReplicaTableTest, AnEpochBeginsWithoutOwners) {
  Begin(1);
  Register(1);
  EXPECT_EQ(table_.replica(1).grant, (uint64_t{1} << 32) + 1);
  Register(1);
  EXPECT_EQ(table_.replica(1).grant, (uint64_t{1} << 32) + 2);
  Begin(2);
  EXPECT_THAT(ReplicasOf(1), IsEmpty());
  EXPECT_EQ(table_.num_alive(), 0u);
  Register(1);
  EXPECT_EQ(table_.replica(1).grant, (uint64_t{2} << 32) + 1);
}

// A clone that comes back gets its home replica at the next step if another clone computes it.
TEST_F(ReplicaTableTest, AHomeReplicaIsNotTakenFromALiveOwner) {
  Begin(1);
  Register(0);
  Register(3);  // a spare
  table_.DoNotWaitForUnseen();
  now_ += kLeaseTime;
  Register(0);
  Register(3);
  EXPECT_THAT(Reassign(), ElementsAre(1, 2));
  EXPECT_THAT(ReplicasOf(3), ElementsAre(1));
  Register(1);
  EXPECT_THAT(ReplicasOf(3), ElementsAre(1));
  EXPECT_THAT(table_.ReturnHome(2), ElementsAre(1));
  EXPECT_THAT(ReplicasOf(1), ElementsAre(1));
  EXPECT_EQ(table_.replica(1).from_step, 2u);
}

TEST_F(ReplicaTableTest, AHomeReplicaWithAContributionIsGrantedAtTheNextStep) {
  Begin(1);
  table_.Register(1, "host", 1, now_, Everybody);
  EXPECT_THAT(ReplicasOf(1), IsEmpty());
  EXPECT_THAT(table_.ReturnHome(2), ElementsAre(1));
}

TEST_F(ReplicaTableTest, ALeaseEndsOnce) {
  Begin(1);
  Register(0);
  now_ += kLeaseTime;
  EXPECT_THAT(table_.ExpireLeases(now_), ElementsAre(0));
  EXPECT_THAT(table_.ExpireLeases(now_ + kLeaseTime), IsEmpty());
}

TEST_F(ReplicaTableTest, AnEvictionIsRepeatedWithoutEffect) {
  Begin(1);
  Register(0);
  EXPECT_THAT(table_.Evict(0, "first"), ElementsAre(0));
  EXPECT_THAT(table_.Evict(0, "second"), IsEmpty());
  EXPECT_EQ(table_.Find(0)->evicted, "first");
}

// Replicas 1 and 2 have had no owner in this epoch.
TEST_F(ReplicaTableTest, OnlyAnIdleSpareTakesAReplicaBeforeItsHomeHasComeOnce) {
  Begin(1);
  Register(0);
  now_ += 5 * kLeaseTime;
  Register(0);
  EXPECT_THAT(Reassign(), IsEmpty()) << "clone 0 is no spare";
  Register(3);  // the first number that has no home replica
  EXPECT_THAT(Reassign(), ElementsAre(1)) << "the spare is not idle any more";
}

TEST_F(ReplicaTableTest, AHomeThatWasSeenGetsOneLeaseToComeBack) {
  Begin(1);
  for (const uint32_t worker : {0, 1, 2}) Register(worker);
  now_ += absl::Seconds(1000);
  Begin(2);
  Register(0);
  now_ += kLeaseTime - absl::Nanoseconds(1);
  EXPECT_THAT(Reassign(), IsEmpty());
  now_ += absl::Nanoseconds(1);
  EXPECT_THAT(Reassign(), ElementsAre(1, 2));
  EXPECT_THAT(ReplicasOf(0), ElementsAre(0, 1, 2));
}

// The table has entries for clones 1 and 2, but has never seen them.
TEST_F(ReplicaTableTest, OnlyAnEvictedCloneThatWasNeverSeenIsNotAwaited) {
  Begin(1);
  table_.Evict(1, "");
  table_.clone(2).drops = 1;
  Register(0);
  now_ += 5 * kLeaseTime;
  EXPECT_THAT(Reassign(), ElementsAre(1)) << "clone 2 may still come";
}

TEST_F(ReplicaTableTest, ACloneThatIsAwaitedDoesNotDelayOtherReplicas) {
  Begin(1);
  Register(0);
  Register(2);
  now_ += 5 * kLeaseTime;
  Begin(2);
  Register(0);
  now_ += kLeaseTime;
  EXPECT_THAT(Reassign(), ElementsAre(2)) << "clone 1 was never seen";
}

TEST_F(ReplicaTableTest, AReplicaThatHadAnOwnerIsNotKeptForItsHome) {
  Begin(1);
  Register(0);
  Register(3);
  EXPECT_THAT(Reassign(), ElementsAre(1));
  EXPECT_THAT(ReplicasOf(3), ElementsAre(1));
  table_.Evict(3, "");
  EXPECT_THAT(Reassign(), ElementsAre(1));
  EXPECT_THAT(ReplicasOf(0), ElementsAre(0, 1));
}

// Clone 1 computes nothing now because its replica has contributed to the step.
TEST_F(ReplicaTableTest, ACloneWithAHomeIsNoSpareWhileItHasNothingToDo) {
  Begin(1);
  table_.Register(1, "host", 1, now_, Everybody);
  EXPECT_THAT(table_.Reassign(1, now_, [](uint32_t replica) { return replica == 1; }), IsEmpty());
}

TEST_F(ReplicaTableTest, TheLeastBusyCloneTakesOver) {
  Begin(1);
  for (const uint32_t worker : {0, 1, 2}) Register(worker);
  now_ += kLeaseTime;
  Register(1);
  Register(4);  // an idle spare
  table_.ExpireLeases(now_);
  EXPECT_THAT(Reassign(), ElementsAre(0, 2));
  EXPECT_THAT(ReplicasOf(4), ElementsAre(0));
  EXPECT_THAT(ReplicasOf(1), ElementsAre(1, 2)) << "of clones with one replica each, the first";
  Register(0);
  Register(2);
  EXPECT_THAT(table_.ReturnHome(2), ElementsAre(0, 2));
}

TEST_F(ReplicaTableTest, AFullTableForgetsTheSpareThatWasLostFirst) {
  Begin(1);
  const uint32_t first = table_.num_replicas();
  const uint32_t unknown = 900;
  // Spare first + 1 was lost before the others, spare first + 2 was evicted before that.
  now_ += absl::Seconds(1);
  Register(first + 1);
  for (uint32_t i = 0; i < ReplicaTable::kMaxSpares; ++i) {
    now_ += absl::Milliseconds(1);
    if (i != 1) Register(first + i);
  }
  table_.Evict(first + 2, "");
  EXPECT_FALSE(table_.HasRoomFor(unknown)) << "all spares are alive, or evicted";
  EXPECT_TRUE(table_.HasRoomFor(2)) << "it has a home replica";
  EXPECT_TRUE(table_.HasRoomFor(first + 3)) << "it is known";
  now_ += 2 * kLeaseTime;
  table_.ExpireLeases(now_);
  for (const uint32_t lost : {1, 0, 3, 4}) {
    EXPECT_TRUE(table_.HasRoomFor(unknown));
    EXPECT_EQ(table_.Find(first + lost), nullptr) << lost;
    Register(1000 + lost);
  }
  EXPECT_NE(table_.Find(first + 2), nullptr) << "an eviction is kept";
}

TEST_F(ReplicaTableTest, TheFirstNumberWithoutAHomeIsASpareToo) {
  Begin(1);
  const uint32_t spare = table_.num_replicas();
  for (uint32_t i = 1; i <= ReplicaTable::kMaxSpares; ++i) Register(spare + i);
  EXPECT_FALSE(table_.HasRoomFor(spare));
}

// Its grants tell which clone may contribute.
TEST_F(ReplicaTableTest, ASpareThatHoldsAReplicaIsNotForgotten) {
  table_.SetNumReplicas(1);
  Begin(1);
  Register(100);
  EXPECT_THAT(Reassign(), ElementsAre(0));
  for (uint32_t i = 1; i < ReplicaTable::kMaxSpares; ++i) Register(100 + i);
  now_ += 2 * kLeaseTime;
  table_.ExpireLeases(now_);
  EXPECT_TRUE(table_.HasRoomFor(1000));
  EXPECT_NE(table_.Find(100), nullptr);
  EXPECT_EQ(table_.Find(101), nullptr);
}

TEST_F(ReplicaTableTest, WakesUpForTheNextLeaseAndForTheEndOfTheGraceOfAnEpoch) {
  Begin(1);
  EXPECT_EQ(table_.NextWakeup(now_), now_ + kLeaseTime);
  now_ += kLeaseTime;
  EXPECT_EQ(table_.NextWakeup(now_), absl::InfiniteDuration());
  Register(0);
  const absl::Duration first = now_ + kLeaseTime;
  now_ += absl::Seconds(1);
  Register(1);
  EXPECT_EQ(table_.NextWakeup(now_), first);
  table_.ExpireLeases(first);
  EXPECT_EQ(table_.NextWakeup(first), now_ + kLeaseTime);
}

}  // namespace
}  // namespace pushpull
