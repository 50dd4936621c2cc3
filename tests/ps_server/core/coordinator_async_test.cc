// The asynchronous mode of the coordinator: every push is a step of its own.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

class CoordinatorAsyncTest : public CoordinatorTest {
 protected:
  CoordinatorAsyncTest() { options_.sync = false; }

  ps::CommitRequest Push(uint32_t slot, uint64_t sequence, uint64_t base_version) {
    ps::CommitRequest request = CommitRequest(sequence, slot);
    request.mutable_key()->set_base_version(base_version);
    return request;
  }
  // Answers the apply that is under way.
  void AnswerApply() {
    const auto calls = Take<coordinator_action::CallShard>();
    Send(coordinator_event::ShardReplied{calls.back().rpc, ShardReply(ps::ApplyReply())});
  }
};

TEST_F(CoordinatorAsyncTest, AppliesEachPushAsAStep) {
  StartWithClones();
  const auto first = Commit(Push(1, 1, 0)).at(0).reply;
  EXPECT_EQ(first->level(), ps::APPLIED);
  EXPECT_EQ(first->staleness(), 0u);
  const auto second = Commit(Push(0, 1, 0)).at(0).reply;
  EXPECT_EQ(second->version(), 2u);
  EXPECT_EQ(second->staleness(), 1u);
  EXPECT_EQ(Take<coordinator_action::StepApplied>().at(1).staleness, 1u);
}

TEST_F(CoordinatorAsyncTest, AppliesEachPushOnce) {
  StartWithClones();
  EXPECT_TRUE(Commit(Push(1, 3, 0)).at(0).reply.ok());  // numbers may be left out
  EXPECT_EQ(Commit(Push(1, 3, 0)).at(0).reply->outcome(), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(Commit(Push(1, 2, 0)).at(0).reply->outcome(), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(coordinator_->version(), 1u);
}

TEST_F(CoordinatorAsyncTest, ARepeatedCommitIsAnsweredWithTheFirst) {
  StartWithClones();
  silent_ = true;
  EXPECT_TRUE(Commit(Push(0, 1, 0)).empty());
  EXPECT_TRUE(Commit(Push(1, 1, 0)).empty());  // waits for its turn
  EXPECT_TRUE(Commit(Push(0, 1, 0)).empty());
  AnswerApply();
  EXPECT_EQ(Take<coordinator_action::ReplyCommit>().size(), 2u);
  AnswerApply();
  EXPECT_EQ(Take<coordinator_action::ReplyCommit>().size(), 1u);
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(CoordinatorAsyncTest, RefusesWhatIsTooStale) {
  options_.max_staleness = 1;
  StartWithClones();
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) {
    EXPECT_TRUE(Commit(Push(0, sequence, sequence - 1)).at(0).reply.ok());
  }
  const absl::Status status = Commit(Push(1, 1, 0)).at(0).reply.status();
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::STALE);
  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_EQ(coordinator_->Status(now_).dropped_contributions(), 1u);
  EXPECT_EQ(Commit(Push(1, 2, 1)).at(0).reply->staleness(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(Commit(Push(1, 3, 9)).at(0).reply.status()));
}

TEST_F(CoordinatorAsyncTest, ARegistrationWaitsForThePushBeingApplied) {
  StartWithClones();
  silent_ = true;
  EXPECT_TRUE(Commit(Push(0, 1, 0)).empty());
  EXPECT_TRUE(Commit(Push(1, 1, 0)).empty());
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::NOT_READY);
  // What only waits for its turn is forgotten: its worker has died.
  EXPECT_TRUE(Register(1).ok());
  EXPECT_EQ(KindOf(Take<coordinator_action::ReplyCommit>().at(0).reply.status()),
            ps::ErrorDetail::FENCED);
  AnswerApply();
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_TRUE(Register(0).ok());
}

TEST_F(CoordinatorAsyncTest, AClonesSlotIsItsOwnAtOnceWhileAnothersPushIsApplied) {
  Start();
  EXPECT_TRUE(Register(1).ok());
  silent_ = true;
  EXPECT_TRUE(Commit(Push(1, 1, 0)).empty());
  const auto reply = Register(0);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->grants_size(), 1);
  EXPECT_EQ(reply->grants(0).slot(), 0u);
  EXPECT_TRUE(Commit(Push(0, 1, 0)).empty());
  AnswerApply();
  AnswerApply();
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(CoordinatorAsyncTest, EndsAtTheLastStep) {
  options_.num_steps = 2;
  StartWithClones();
  silent_ = true;
  Commit(Push(0, 1, 0));
  Commit(Push(1, 1, 0));
  Commit(Push(2, 1, 0));
  AnswerApply();
  silent_ = false;
  AnswerApply();
  const auto replies = Take<coordinator_action::ReplyCommit>();
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_EQ(replies[2].reply->outcome(), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(coordinator_->version(), 2u);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
}

TEST_F(CoordinatorAsyncTest, DoesNotReassignSlotsAndKnowsItsClones) {
  StartWithClones();
  EXPECT_TRUE(absl::IsFailedPrecondition(Register(3).status()));
  for (int i = 0; i < 4; ++i) {
    Pass(absl::Seconds(3));
    EXPECT_TRUE(Heartbeat(0).ok());
  }
  EXPECT_EQ(Heartbeat(0)->grants_size(), 1);
  EXPECT_EQ(Heartbeat(1)->grants_size(), 1);
  EXPECT_EQ(Heartbeat(0)->waiting_for(), "");
}

TEST_F(CoordinatorAsyncTest, ManyVoidPushesInARowStopTraining) {
  options_.non_finite_policy = NonFinitePolicy::kSkip;
  StartWithClones();
  for (uint64_t sequence = 1; sequence <= 10; ++sequence) {
    EXPECT_TRUE(Take<coordinator_action::Stopped>().empty());
    ps::CommitRequest request = Push(0, sequence, 0);
    request.mutable_info()->set_samples(0);
    EXPECT_EQ(Commit(request).at(0).reply->outcome(), ps::PushReply::VOID);
    EXPECT_EQ(Commit(request).at(0).reply.ok(), sequence < 10);  // repeated: counted once
  }
  EXPECT_EQ(Take<coordinator_action::Stopped>().size(), 1u);
}

}  // namespace
}  // namespace pushpull
