// Clones that say that they end.
#include "gtest/gtest.h"

#include "common/wire/error_detail.h"
#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

class LeavingCloneTest : public CoordinatorTest {
 protected:
  static constexpr bool kLeaves = true;

  LeavingCloneTest() { StartWithClones(); }
  ps::CloneStatus StatusOf(int clone) { return coordinator_->Status(now_).clones(clone); }
};

TEST_F(LeavingCloneTest, ItsReplicaGoesToAnotherCloneInTheOpenStep) {
  RunStep(1);
  EXPECT_TRUE(Commit(2, 0).ok());
  EXPECT_TRUE(Commit(2, 1).ok());
  const ps::CommitRequest late = CommitRequest(2, 2);
  Take<coordinator_action::Notice>();
  ASSERT_TRUE(Heartbeat(registered_[2], kLeaves).ok());
  EXPECT_EQ(Take<coordinator_action::Notice>().at(0).text,
            "clone 2 of 3 (host:2) was stopped and has left");
  EXPECT_FALSE(StatusOf(2).alive());
  EXPECT_TRUE(StatusOf(2).left());
  ASSERT_EQ(Heartbeat(0)->grants_size(), 2) << "no time has passed";
  EXPECT_EQ(KindOf(Commit(late).at(0).reply.status()), ps::ErrorDetail::EPOCH_CHANGED);
  ps::CommitRequest of_clone_0 = CommitRequest(2, 2);
  of_clone_0.mutable_key()->set_worker_id(0);
  EXPECT_TRUE(Commit(of_clone_0).at(0).reply.ok());
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(LeavingCloneTest, WhatItHasCommittedCounts) {
  EXPECT_TRUE(Commit(1, 2).ok());
  ASSERT_TRUE(Heartbeat(registered_[2], kLeaves).ok());
  EXPECT_TRUE(Commit(1, 0).ok());
  EXPECT_TRUE(Commit(1, 1).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
}

TEST_F(LeavingCloneTest, AnotherProcessTakesItsPlaceAtOnce) {
  const ps::RegisterRequest earlier = registered_[2];
  EXPECT_TRUE(absl::IsAlreadyExists(Register(2, "host:other").status()));
  ASSERT_TRUE(Heartbeat(earlier, kLeaves).ok());
  EXPECT_EQ(KindOf(Heartbeat(earlier).status()), ps::ErrorDetail::EPOCH_CHANGED)
      << "a heartbeat that comes late must not bring it back";
  ASSERT_TRUE(Register(2, "host:other").ok());
  EXPECT_EQ(KindOf(Heartbeat(earlier, kLeaves).status()), ps::ErrorDetail::EPOCH_CHANGED);
  EXPECT_TRUE(StatusOf(2).alive()) << "only the process that is registered can leave";
  EXPECT_FALSE(StatusOf(2).left());
  EXPECT_TRUE(Heartbeat(0).ok());  // tells the grant of replica 2 in the open step
  RunStep(1);
  EXPECT_EQ(Heartbeat(2)->grants_size(), 1) << "its replica returns at the next step";
}

}  // namespace
}  // namespace pushpull
