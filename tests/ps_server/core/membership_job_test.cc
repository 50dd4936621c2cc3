// Clones that began when the server had other settings, and clones that say that they end.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"
#include "ps_server/core/membership.h"
#include "tests/ps_server/core/coordinator_driver.h"
#include "tests/ps_server/core/part_driver.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

class MembershipJobTest : public PartTest {
 protected:
  MembershipJobTest() { options_.fingerprint = "of this server"; }

  absl::Status Announce(const std::string& fingerprint, const std::string& layout) {
    ps::RegisterRequest request;
    request.set_num_replicas(2);
    request.set_peer_name("host:7");
    request.set_layout_signature(layout);
    request.set_protocol_version(kProtocolVersion);
    request.set_job_fingerprint(fingerprint);
    return members_.CheckAnnouncement(request);
  }

  Membership members_{options_, job_, &actions_};
};

TEST_F(MembershipJobTest, AProcessThatBeganWithOtherSettingsIsToldToStartAgain) {
  EXPECT_EQ(Announce("of this server", "layout"), absl::OkStatus());
  EXPECT_EQ(Announce("", "layout"), absl::OkStatus()) << "a clone that does not say";
  // A restart helps even if the model has changed as well, so that is not what the error says.
  for (const char* layout : {"layout", "another layout"}) {
    const absl::Status refused = Announce("of an earlier server", layout);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
    EXPECT_EQ(GetErrorDetail(refused).kind(), ps::ErrorDetail::JOB_CHANGED) << refused;
    EXPECT_TRUE(GetErrorDetail(refused).may_pass());
    EXPECT_TRUE(IsPassing(refused));
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("clone 0 (host:7) began with other settings"));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("Start the clone's program again"));
  }
}

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
