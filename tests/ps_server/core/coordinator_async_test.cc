// Tests the asynchronous mode of the coordinator, in which every push makes a step.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

using testing::Contains;
using testing::HasSubstr;

class CoordinatorAsyncTest : public CoordinatorTest {
 protected:
  CoordinatorAsyncTest() { options_.sync = false; }

  // Returns a push of the batch at `position`, with the sequence number `number`, whose gradient
  // was computed at `base_version`.
  ps::CommitRequest Push(uint32_t replica, uint64_t number, uint64_t base_version,
                         uint64_t position) {
    ps::CommitRequest request = CommitRequest(number, replica);
    request.mutable_key()->set_base_version(base_version);
    request.mutable_key()->set_position(position);
    return request;
  }
  // Returns the push of a clone whose earlier pushes were all applied.
  ps::CommitRequest Push(uint32_t replica, uint64_t number, uint64_t base_version) {
    return Push(replica, number, base_version, number - 1);
  }
  ps::PushReply::Outcome OutcomeOf(const ps::CommitRequest& request) {
    return Commit(request).at(0).reply->outcome();
  }
  // Returns the next position of each replica, as stored with the version that is being applied
  // or was applied last.
  std::vector<uint64_t> Marks() {
    ps::PushMarks marks;
    std::vector<uint64_t> positions;
    for (const auto& call : Take<coordinator_action::CallShard>()) {
      const auto* apply = std::get_if<shard_call::Apply>(&call.call);
      if (apply != nullptr) restored_marks_ = apply->request.marks();
    }
    EXPECT_TRUE(marks.ParseFromString(restored_marks_) && marks.has_positions());
    for (const ps::PushMark& mark : marks.marks()) positions.push_back(mark.next_position());
    return positions;
  }
  // Restarts all shards, which then hold these versions and the marks of the last apply.
  void Restart(std::vector<VersionId> held) {
    Marks();
    held_ = std::move(held);
    stored_epoch_ = coordinator_->epoch();
    silent_ = false;
    Start();
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

TEST_F(CoordinatorAsyncTest, AppliesEachPositionOnce) {
  StartWithClones();
  EXPECT_EQ(OutcomeOf(Push(1, 3, 0, 0)), ps::PushReply::ACCEPTED);  // numbers may have gaps
  EXPECT_EQ(OutcomeOf(Push(1, 3, 0, 0)), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(OutcomeOf(Push(1, 4, 0, 0)), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_EQ(OutcomeOf(Push(1, 5, 0, 1)), ps::PushReply::ACCEPTED);
  EXPECT_EQ(Marks(), (std::vector<uint64_t>{0, 2, 0}));
}

TEST_F(CoordinatorAsyncTest, RefusesAPushThatSkipsAPosition) {
  StartWithClones();
  EXPECT_EQ(OutcomeOf(Push(1, 1, 0, 0)), ps::PushReply::ACCEPTED);
  const absl::Status refused = Commit(Push(1, 2, 0, 2)).at(0).reply.status();
  EXPECT_EQ(KindOf(refused), ps::ErrorDetail::FENCED) << "the clone must register again";
  EXPECT_EQ(Register(1)->grants(0).position(), 1u);
  EXPECT_EQ(OutcomeOf(Push(1, 1, 0, 1)), ps::PushReply::ACCEPTED);
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(CoordinatorAsyncTest, RemembersAPushWhoseReplyWasLostAcrossARestart) {
  StartWithClones();
  EXPECT_EQ(OutcomeOf(Push(1, 1, 0, 0)), ps::PushReply::ACCEPTED);
  EXPECT_EQ(OutcomeOf(Push(1, 2, 1, 1)), ps::PushReply::ACCEPTED);
  // The server is killed before it sends the last reply.
  Restart({{7, 2}});
  EXPECT_EQ(coordinator_->version(), 2u);
  EXPECT_EQ(Register(1)->grants(0).position(), 2u);
  EXPECT_EQ(Register(0)->grants(0).position(), 0u);
  // A clone that repeats an applied position has no effect.
  EXPECT_EQ(OutcomeOf(Push(1, 1, 2, 1)), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(coordinator_->version(), 2u);
  EXPECT_EQ(OutcomeOf(Push(1, 2, 2, 2)), ps::PushReply::ACCEPTED);
}

TEST_F(CoordinatorAsyncTest, PositionsAreRolledBackWithTheVersion) {
  StartWithClones();
  EXPECT_EQ(OutcomeOf(Push(1, 1, 0, 0)), ps::PushReply::ACCEPTED);
  Marks();
  const std::string marks_of_1 = restored_marks_;
  EXPECT_EQ(OutcomeOf(Push(1, 2, 1, 1)), ps::PushReply::ACCEPTED);
  EXPECT_EQ(OutcomeOf(Push(0, 1, 1, 0)), ps::PushReply::ACCEPTED);
  Marks();
  restored_marks_ = marks_of_1;
  held_ = {{7, 1}};
  stored_epoch_ = coordinator_->epoch();
  Start();
  EXPECT_EQ(Register(1)->grants(0).position(), 1u);
  EXPECT_EQ(Register(0)->grants(0).position(), 0u);
  EXPECT_EQ(KindOf(Commit(Push(1, 1, 1, 2)).at(0).reply.status()), ps::ErrorDetail::FENCED);
  EXPECT_EQ(OutcomeOf(Push(1, 2, 1, 1)), ps::PushReply::ACCEPTED);
}

// If fewer replicas could follow, the positions of the others would be lost, and their batches
// would count twice when they come back.
TEST_F(CoordinatorAsyncTest, TheNumberOfReplicasOutlivesARestart) {
  options_.num_replicas = 0;
  StartWithClones();
  EXPECT_EQ(OutcomeOf(Push(2, 1, 0, 0)), ps::PushReply::ACCEPTED);
  EXPECT_EQ(OutcomeOf(Push(2, 2, 1, 1)), ps::PushReply::ACCEPTED);
  Restart({{7, 2}});
  EXPECT_EQ(coordinator_->num_replicas(), 3u);
  ps::RegisterRequest request = RegisterRequest(0, "");
  request.set_num_replicas(2);
  const absl::Status refusal = Register(request).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal)) << refusal;
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("announces 2 clones"));
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("this job has 3"));
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("start as many as before"));
  EXPECT_EQ(Register(2)->grants(0).position(), 2u);
}

TEST_F(CoordinatorAsyncTest, AServerThatIsToldAnotherNumberOfReplicasStops) {
  StartWithClones();
  EXPECT_EQ(OutcomeOf(Push(1, 1, 0, 0)), ps::PushReply::ACCEPTED);
  options_.num_replicas = 2;
  Restart({{7, 1}});
  const auto stopped = Take<coordinator_action::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(stopped[0].reason)) << stopped[0].reason;
  EXPECT_THAT(std::string(stopped[0].reason.message()), HasSubstr("trained with 3 replicas"));
  EXPECT_THAT(std::string(stopped[0].reason.message()), HasSubstr("--num_replicas is 2"));
  EXPECT_EQ(Take<coordinator_action::TakeOver>().size(), 1u) << "of the first start";
  options_.num_replicas = 3;
  Start();
  EXPECT_EQ(Register(1)->grants(0).position(), 1u);
}

// Before the first push nothing is lost by another number.
TEST_F(CoordinatorAsyncTest, AnyNumberOfReplicasFollowsTheInitialVariables) {
  options_.num_replicas = 0;
  StartWithClones();
  stored_epoch_ = coordinator_->epoch();
  Start();
  EXPECT_EQ(coordinator_->num_replicas(), 0u);
  ps::RegisterRequest request = RegisterRequest(0, "");
  request.set_num_replicas(2);
  EXPECT_EQ(Register(request)->num_replicas(), 2u);
}

TEST_F(CoordinatorAsyncTest, AnEvictedClonesReplicaContinuesAtItsPosition) {
  StartWithClones();
  EXPECT_EQ(OutcomeOf(Push(1, 1, 0, 0)), ps::PushReply::ACCEPTED);
  silent_ = true;
  EXPECT_TRUE(Commit(Push(1, 2, 1, 1)).empty());
  EXPECT_TRUE(Evict(1).ok());
  AnswerApply();  // the push that was being applied is complete
  EXPECT_EQ(coordinator_->version(), 2u);
  const auto reply = Heartbeat(0);
  ASSERT_TRUE(reply.ok());
  ASSERT_EQ(reply->grants_size(), 2);
  EXPECT_EQ(reply->grants(1).replica(), 1u);
  EXPECT_EQ(reply->grants(1).position(), 2u);
}

TEST_F(CoordinatorAsyncTest, AVoidPositionIsNotRequestedAgain) {
  options_.non_finite_policy = NonFinitePolicy::kSkip;
  StartWithClones();
  ps::CommitRequest request = Push(1, 1, 0, 0);
  request.mutable_info()->set_samples(0);
  EXPECT_EQ(OutcomeOf(request), ps::PushReply::VOID);
  EXPECT_EQ(OutcomeOf(Push(2, 1, 0, 0)), ps::PushReply::ACCEPTED);
  EXPECT_EQ(Marks(), (std::vector<uint64_t>{0, 1, 1})) << "a void position must be stored too";
  Restart({{7, 1}});
  EXPECT_EQ(Register(1)->grants(0).position(), 1u);
}

TEST_F(CoordinatorAsyncTest, AVersionWithoutPositionsIsDividedEquallyAmongReplicas) {
  ps::PushMarks old;  // of an older release: a mark of replica 0 without a position
  old.add_marks();
  restored_marks_ = old.SerializeAsString();
  held_ = {{6, 100}};
  StartWithClones();
  for (uint32_t replica = 0; replica < 3; ++replica) EXPECT_EQ(grants_[replica].position(), 33u);
  std::vector<std::string> notices;
  for (const auto& notice : Take<coordinator_action::Notice>()) notices.push_back(notice.text);
  EXPECT_THAT(notices, Contains(HasSubstr("it was trained in synchronous mode or by a release")));
  EXPECT_EQ(OutcomeOf(Push(1, 1, 100, 33)), ps::PushReply::ACCEPTED);
  EXPECT_EQ(Marks(), (std::vector<uint64_t>{33, 34, 33}));
}

TEST_F(CoordinatorAsyncTest, RestoresTheCheckpointWhenShardsDisagreeAboutPositions) {
  options_.tasks = 2;
  held_ = {{6, 4}};
  checkpoint_ = FoundCheckpoint{{6, 3}};
  ReplicaPositions positions;
  restored_marks_ = positions.Serialize(3);
  positions.SetDone(2, 0);
  mapped_marks_of_1_ = positions.Serialize(3);
  Start();
  for (int i = 0; i < 3; ++i) Pass(absl::Seconds(20));  // longer than the pauses between epochs
  const auto serving = Take<coordinator_action::Serving>();
  ASSERT_EQ(serving.size(), 1u);
  EXPECT_EQ(serving[0].source, ps::RestoreRequest::CHECKPOINT);
  EXPECT_EQ(serving[0].version, 3u);
}

TEST_F(CoordinatorAsyncTest, ALaterPushReplacesTheReplicasQueuedPush) {
  StartWithClones();
  silent_ = true;
  EXPECT_TRUE(Commit(Push(0, 1, 0, 0)).empty());
  EXPECT_TRUE(Commit(Push(1, 1, 0, 0)).empty());  // waits in the queue
  const auto replies = Commit(Push(1, 2, 0, 0));
  ASSERT_EQ(replies.size(), 1u) << "the shards have dropped the chunks of the first push";
  EXPECT_EQ(KindOf(replies[0].reply.status()), ps::ErrorDetail::FENCED);
  AnswerApply();
  AnswerApply();
  EXPECT_EQ(coordinator_->version(), 2u);
  EXPECT_EQ(Take<coordinator_action::ReplyCommit>().size(), 2u);
}

TEST_F(CoordinatorAsyncTest, ARepeatedCommitIsAnsweredTogetherWithTheFirst) {
  StartWithClones();
  silent_ = true;
  EXPECT_TRUE(Commit(Push(0, 1, 0)).empty());
  EXPECT_TRUE(Commit(Push(1, 1, 0)).empty());  // waits in the queue
  EXPECT_TRUE(Commit(Push(0, 1, 0)).empty());
  AnswerApply();
  EXPECT_EQ(Take<coordinator_action::ReplyCommit>().size(), 2u);
  AnswerApply();
  EXPECT_EQ(Take<coordinator_action::ReplyCommit>().size(), 1u);
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(CoordinatorAsyncTest, RefusesPushesThatAreTooStale) {
  options_.max_staleness = 1;
  StartWithClones();
  for (uint64_t number = 1; number <= 2; ++number) {
    EXPECT_TRUE(Commit(Push(0, number, number - 1)).at(0).reply.ok());
  }
  const absl::Status status = Commit(Push(1, 1, 0)).at(0).reply.status();
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::STALE);
  EXPECT_TRUE(absl::IsAborted(status));
  EXPECT_EQ(coordinator_->Status(now_).dropped_contributions(), 1u);
  // The clone pushes the same batch again under the next number.
  EXPECT_EQ(Commit(Push(1, 2, 1, 0)).at(0).reply->staleness(), 1u);
  EXPECT_TRUE(absl::IsInvalidArgument(Commit(Push(1, 3, 9, 1)).at(0).reply.status()));
}

TEST_F(CoordinatorAsyncTest, ARegistrationWaitsForThePushBeingApplied) {
  StartWithClones();
  silent_ = true;
  EXPECT_TRUE(Commit(Push(0, 1, 0)).empty());
  EXPECT_TRUE(Commit(Push(1, 1, 0)).empty());
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::NOT_READY);
  // A queued push is dropped when its clone registers again, because the old process is gone.
  EXPECT_TRUE(Register(1).ok());
  EXPECT_EQ(KindOf(Take<coordinator_action::ReplyCommit>().at(0).reply.status()),
            ps::ErrorDetail::FENCED);
  AnswerApply();
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_EQ(Register(0)->grants(0).position(), 1u);
  EXPECT_EQ(Heartbeat(1)->grants(0).position(), 0u);
}

TEST_F(CoordinatorAsyncTest, ARegistrationDoesNotWaitForAnotherClonesPush) {
  Start();
  EXPECT_TRUE(Register(1).ok());
  silent_ = true;
  EXPECT_TRUE(Commit(Push(1, 1, 0)).empty());
  const auto reply = Register(0);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->grants_size(), 1);
  EXPECT_EQ(reply->grants(0).replica(), 0u);
  EXPECT_TRUE(Commit(Push(0, 1, 0)).empty());
  AnswerApply();
  AnswerApply();
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(CoordinatorAsyncTest, EndsAtTheLastStep) {
  options_.limits.num_steps = 2;
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

TEST_F(CoordinatorAsyncTest, RefusesSparesAndDoesNotReassignReplicas) {
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
    EXPECT_EQ(Commit(request).at(0).reply.ok(), sequence < 10);  // a repeated commit counts once
  }
  EXPECT_EQ(Take<coordinator_action::Stopped>().size(), 1u);
}

}  // namespace
}  // namespace pushpull
