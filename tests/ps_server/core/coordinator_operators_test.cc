// Checkpoint, Drain and Evict, and the figures that operators look at.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class OperatorsTest : public CoordinatorTest {
 protected:
  OperatorsTest() { options_.save_checkpoints_every = absl::ZeroDuration(); }

  size_t Published() { return Take<coordinator_action::PublishCheckpoint>().size(); }
  void AnswerPublish(uint64_t step, const absl::Status& status = absl::OkStatus()) {
    Send(coordinator_event::CheckpointPublished{step, status});
  }
  void AnswerApply() {
    const auto calls = Take<coordinator_action::CallShard>();
    Send(coordinator_event::ShardReplied{calls.back().rpc, ShardReply(ps::ApplyReply())});
  }
  // By the bucket's upper bound.
  static std::map<double, uint64_t> Counts(const ps::Histogram& histogram) {
    EXPECT_EQ(histogram.counts_size(), histogram.upper_bounds_size() + 1);
    std::map<double, uint64_t> counts;
    for (int i = 0; i < histogram.upper_bounds_size(); ++i) {
      if (histogram.counts(i) > 0) counts[histogram.upper_bounds(i)] = histogram.counts(i);
    }
    return counts;
  }
};

TEST_F(OperatorsTest, CheckpointSavesWhatIsAppliedNow) {
  StartWithClones();
  RunStep(1);
  RunStep(2);
  EXPECT_TRUE(Commit(3, 0).ok());  // the open step does not count
  const auto replies = AskForCheckpoint();
  ASSERT_EQ(replies.size(), 1u);
  ASSERT_TRUE(replies[0].reply.ok()) << replies[0].reply.status();
  EXPECT_EQ(replies[0].reply->step(), 2u);
  EXPECT_EQ(coordinator_->durable_step(), 2u);
  EXPECT_EQ(Published(), 1u);
  EXPECT_EQ(AskForCheckpoint().at(0).reply->step(), 2u);
  EXPECT_EQ(Published(), 0u) << "the newest one has everything";
}

TEST_F(OperatorsTest, CheckpointCallsJoinTheOneUnderWay) {
  StartWithClones();
  RunStep(1);
  hold_publish_ = true;
  EXPECT_TRUE(AskForCheckpoint().empty());
  EXPECT_TRUE(AskForCheckpoint().empty());
  RunStep(2);
  EXPECT_TRUE(AskForCheckpoint().empty()) << "it asks for more than is being saved";
  EXPECT_EQ(Published(), 1u);
  AnswerPublish(1);
  auto replies = Take<coordinator_action::ReplyCheckpoint>();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[1].reply->step(), 1u);
  EXPECT_EQ(Published(), 1u) << "the next begins at once";
  AnswerPublish(2);
  replies = Take<coordinator_action::ReplyCheckpoint>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].reply->step(), 2u);
}

TEST_F(OperatorsTest, CheckpointDuringAnApplyWaitsForItsEnd) {
  StartWithClones();
  RunStep(1);
  silent_ = true;
  for (uint32_t replica = 0; replica < 3; ++replica) EXPECT_TRUE(Commit(2, replica).ok());
  EXPECT_TRUE(AskForCheckpoint().empty());
  silent_ = false;
  AnswerApply();
  EXPECT_EQ(Take<coordinator_action::ReplyCheckpoint>().at(0).reply->step(), 2u);
}

TEST_F(OperatorsTest, CheckpointThatFailsIsTold) {
  StartWithClones();
  RunStep(1);
  hold_publish_ = true;
  EXPECT_TRUE(AskForCheckpoint().empty());
  RunStep(2);
  EXPECT_TRUE(AskForCheckpoint().empty());
  AnswerPublish(1, absl::ResourceExhaustedError("no space left in /train"));
  auto replies = Take<coordinator_action::ReplyCheckpoint>();
  ASSERT_EQ(replies.size(), 1u) << "the other one asked for step 2";
  EXPECT_THAT(std::string(replies[0].reply.status().message()), HasSubstr("no space left"));
  EXPECT_LE(coordinator_->NextWakeup(), now_) << "it does not wait for the pause after a failure";
  hold_publish_ = false;
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Take<coordinator_action::ReplyCheckpoint>().at(0).reply->step(), 2u);
}

TEST_F(OperatorsTest, CheckpointIsRefusedWhereThereIsNothingToSave) {
  coordinator_ = std::make_unique<Coordinator>(options_);
  EXPECT_EQ(KindOf(AskForCheckpoint().at(0).reply.status()), ps::ErrorDetail::NOT_READY);
  StartWithClones();
  EXPECT_TRUE(absl::IsFailedPrecondition(AskForCheckpoint().at(0).reply.status()));
  RunStep(1);
  hold_publish_ = true;
  EXPECT_TRUE(AskForCheckpoint().empty());
  ps::CommitRequest bad = CommitRequest(2, 1, 0);
  Commit(bad);
  EXPECT_EQ(KindOf(Take<coordinator_action::ReplyCheckpoint>().at(0).reply.status()),
            ps::ErrorDetail::STOPPED);
  EXPECT_EQ(KindOf(AskForCheckpoint().at(0).reply.status()), ps::ErrorDetail::STOPPED);
}

TEST_F(OperatorsTest, CheckpointCallsEndWithTheEpoch) {
  options_.tasks = 2;
  StartWithClones();
  RunStep(1);
  hold_publish_ = true;
  EXPECT_TRUE(AskForCheckpoint().empty());
  boot_ids_[1] = 2;
  Pass(absl::Seconds(1));
  EXPECT_EQ(KindOf(Take<coordinator_action::ReplyCheckpoint>().at(0).reply.status()),
            ps::ErrorDetail::NOT_READY);
}

TEST_F(OperatorsTest, ACancelledCheckpointCallIsNotAnswered) {
  StartWithClones();
  RunStep(1);
  hold_publish_ = true;
  EXPECT_TRUE(AskForCheckpoint().empty());
  Send(coordinator_event::Cancel{call_});
  AnswerPublish(1);
  EXPECT_TRUE(Take<coordinator_action::ReplyCheckpoint>().empty());
}

TEST_F(OperatorsTest, AnEvictedClonesReplicaGoesToAnotherInTheOpenStep) {
  StartWithClones();
  RunStep(1);
  const ps::CommitRequest late = CommitRequest(2, 1);
  const auto reply = Evict(1, "its disk\nis broken");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->replicas(), ElementsAre(1));
  const absl::Status refused = Commit(late).at(0).reply.status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(KindOf(refused), ps::ErrorDetail::EVICTED);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("clone 1 of 3"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("its disk is broken"));
  EXPECT_EQ(KindOf(Heartbeat(1).status()), ps::ErrorDetail::EVICTED);
  EXPECT_EQ(KindOf(Register(1).status()), ps::ErrorDetail::EVICTED);
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(2)->grants_size(), 3);
  for (uint32_t replica = 0; replica < 3; ++replica) {
    ps::CommitRequest commit = CommitRequest(2, replica);
    commit.mutable_key()->set_worker_id(0);
    EXPECT_TRUE(Commit(commit).at(0).reply.ok());
  }
  EXPECT_EQ(coordinator_->version(), 2u);
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(2)->grants_size(), 3) << "for good";
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_TRUE(status.clones(1).evicted());
  EXPECT_FALSE(status.clones(1).alive());
  EXPECT_FALSE(status.clones(0).evicted());
}

TEST_F(OperatorsTest, WhatAnEvictedCloneHasCommittedStands) {
  StartWithClones();
  EXPECT_TRUE(Commit(1, 1).ok());
  EXPECT_TRUE(Evict(1).ok());
  EXPECT_EQ(Heartbeat(0)->grants_size(), 1) << "its replica of this step is done";
  EXPECT_TRUE(Commit(1, 0).ok());
  EXPECT_TRUE(Commit(1, 2).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_EQ(Take<coordinator_action::StepApplied>().at(0).parts.size(), 3u);
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(2)->grants_size(), 3);
}

TEST_F(OperatorsTest, ACloneThatNeverCameIsEvictedToGoOnWithoutIt) {
  Start();
  EXPECT_TRUE(Register(0).ok());
  EXPECT_TRUE(Register(1).ok());
  EXPECT_TRUE(Evict(2)->replicas().empty());
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(1)->grants_size(), 3);
  EXPECT_LT(coordinator_->Status(now_).clones(2).seconds_since_seen(), 0);
}

TEST_F(OperatorsTest, AnEvictionIsForTheLifeOfTheProcess) {
  options_.tasks = 2;
  StartWithClones();
  RunStep(1);
  EXPECT_TRUE(Evict(2, "too slow").ok());
  EXPECT_TRUE(Evict(2, "another reason")->replicas().empty());
  boot_ids_[1] = 2;
  held_ = {{7, 1}};
  Pass(absl::Seconds(1));
  EXPECT_EQ(coordinator_->epoch(), 8u);
  EXPECT_THAT(std::string(Register(2).status().message()), HasSubstr("too slow"));
  EXPECT_TRUE(Register(0).ok());
  EXPECT_TRUE(Register(1).ok());
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(1)->grants_size(), 3);
  for (uint32_t replica = 0; replica < 3; ++replica) {
    ps::CommitRequest commit = CommitRequest(2, replica);
    commit.mutable_key()->set_worker_id(0);
    EXPECT_TRUE(Commit(commit).at(0).reply.ok());
  }
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(OperatorsTest, EvictRefusesWhatMakesNoSense) {
  coordinator_ = std::make_unique<Coordinator>(options_);
  EXPECT_EQ(KindOf(Evict(0).status()), ps::ErrorDetail::NOT_READY);
  StartWithClones();
  EXPECT_TRUE(absl::IsNotFound(Evict(7).status()));
  EXPECT_THAT(std::string(Evict(7).status().message()), HasSubstr("0 to 2"));
  EXPECT_TRUE(absl::IsInvalidArgument(Evict(0, std::string(501, 'x')).status()));
  EXPECT_TRUE(Heartbeat(0).ok());
}

TEST_F(OperatorsTest, SaysWhenNobodyIsLeft) {
  StartWithClones();
  for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(Evict(worker).ok());
  EXPECT_THAT(Take<coordinator_action::Notice>().back().text, HasSubstr("no clone is left"));
  Pass(absl::Seconds(3));
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr("(evicted, and no other is there"));
}

TEST_F(OperatorsTest, AnAsynchronousClonesReplicaGoesToAnotherToo) {
  options_.sync = false;
  StartWithClones();
  silent_ = true;
  EXPECT_TRUE(Commit(CommitRequest(1, 0)).empty());
  EXPECT_TRUE(Commit(CommitRequest(1, 1)).empty());
  EXPECT_TRUE(Commit(CommitRequest(1, 2)).empty());
  // What is on its way into the variables gets there; what waits for its turn does not.
  EXPECT_TRUE(Evict(0).ok());
  EXPECT_TRUE(Evict(1).ok());
  EXPECT_EQ(KindOf(Take<coordinator_action::ReplyCommit>().at(0).reply.status()),
            ps::ErrorDetail::EVICTED);
  EXPECT_EQ(Heartbeat(2)->grants_size(), 1) << "replica 0 is being applied";
  AnswerApply();
  AnswerApply();
  EXPECT_EQ(coordinator_->version(), 2u);
  EXPECT_EQ(Take<coordinator_action::ReplyCommit>().size(), 2u);
  EXPECT_EQ(Heartbeat(2)->grants_size(), 3);
  silent_ = false;
  ps::CommitRequest for_another = CommitRequest(1, 0);
  for_another.mutable_key()->set_worker_id(2);
  for_another.mutable_key()->set_base_version(2);
  EXPECT_EQ(Commit(for_another).at(0).reply->level(), ps::APPLIED);
  // Who has them registers again: all are granted anew.
  const uint64_t old_grant = grants_[0].grant();
  EXPECT_EQ(Register(2)->grants_size(), 3);
  EXPECT_GT(grants_[0].grant(), old_grant);
}

TEST_F(OperatorsTest, DrainByCallIsAnsweredAtOnceAndEndsTheProcess) {
  StartWithClones();
  RunStep(1);
  EXPECT_TRUE(Commit(2, 0).ok());
  Send(coordinator_event::Drain{++call_});
  EXPECT_EQ(Take<coordinator_action::ReplyDrain>().at(0).reply->version(), 1u);
  EXPECT_EQ(Take<coordinator_action::EndWanted>().size(), 1u);
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
  EXPECT_TRUE(Commit(2, 1).ok());
  EXPECT_TRUE(Commit(2, 2).ok());
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_EQ(coordinator_->durable_step(), 2u) << "no applied step is lost";
  Send(coordinator_event::Drain{++call_});
  EXPECT_EQ(Take<coordinator_action::ReplyDrain>().at(0).reply->version(), 2u);
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
}

TEST_F(OperatorsTest, DrainEndsAProcessThatWouldStayAfterTheLastStep) {
  options_.num_steps = 1;
  StartWithClones();
  RunStep(1);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  Send(coordinator_event::Drain{});
  EXPECT_TRUE(Take<coordinator_action::EndWanted>().empty()) << "a signal is known to the main";
  Send(coordinator_event::Drain{++call_});
  EXPECT_EQ(Take<coordinator_action::EndWanted>().size(), 1u);
  EXPECT_EQ(Take<coordinator_action::ReplyDrain>().at(0).reply->version(), 1u);
}

TEST_F(OperatorsTest, AStoppedServerSaysSoAndIsNotDrained) {
  StartWithClones();
  Commit(CommitRequest(1, 1, 0));
  Send(coordinator_event::Drain{++call_});
  EXPECT_EQ(KindOf(Take<coordinator_action::ReplyDrain>().at(0).reply.status()),
            ps::ErrorDetail::STOPPED);
  EXPECT_TRUE(Take<coordinator_action::EndWanted>().empty());
  Send(coordinator_event::Drain{});
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty()) << "clones still hear why it stopped";
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::STOPPED);
}

TEST_F(OperatorsTest, AStragglerCostsTheDeadlineOnce) {
  options_.step_deadline = absl::Seconds(4);
  options_.min_contributors = 2;
  StartWithClones();
  for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(1, replica).ok());
  EXPECT_EQ(coordinator_->version(), 0u);
  Pass(absl::Seconds(4));
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_EQ(coordinator_->Status(now_).clones(2).drops(), 1u) << "counted while it is away";
  for (uint64_t step = 2; step <= 4; ++step) {
    for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(step, replica).ok());
    EXPECT_EQ(coordinator_->version(), step) << "nobody waits for it again";
  }
  EXPECT_EQ(coordinator_->Status(now_).clones(2).drops(), 4u);
  // Another clone that is late is still waited for.
  EXPECT_TRUE(Commit(5, 0).ok());
  EXPECT_EQ(coordinator_->version(), 4u);
  EXPECT_TRUE(Commit(5, 1).ok());
  // It wakes up, and takes part again.
  EXPECT_EQ(Commit(1, 2)->outcome(), ps::PushReply::ALREADY_APPLIED);
  for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(6, replica).ok());
  EXPECT_EQ(coordinator_->version(), 5u);
  EXPECT_TRUE(Commit(6, 2).ok());
  EXPECT_EQ(coordinator_->version(), 6u);
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(status.clones(2).drops(), 5u) << "a late contribution is not counted twice";
  EXPECT_EQ(status.clones(2).contributions(), 1u);
  EXPECT_EQ(status.dropped_contributions(), 5u);
  EXPECT_EQ(Counts(status.contributors()), (std::map<double, uint64_t>{{2, 5}, {3, 1}}));
  EXPECT_EQ(status.contributors().sum(), 13);
}

TEST_F(OperatorsTest, ALateClonesSuccessorIsWaitedFor) {
  options_.step_deadline = absl::Seconds(4);
  options_.min_contributors = 2;
  StartWithClones();
  for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(1, replica).ok());
  Pass(absl::Seconds(4));
  EXPECT_EQ(coordinator_->version(), 1u);
  for (const uint32_t worker : {0, 1}) EXPECT_TRUE(Heartbeat(worker).ok());
  Pass(absl::Seconds(6));  // its lease ends
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(1)->grants_size(), 3);
  for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(2, replica).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_TRUE(Commit(2, 2).ok());
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(OperatorsTest, FiguresOfCheckpointsAndOfWhoIsLate) {
  StartWithClones();
  RunStep(1);
  ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(status.checkpoints(), 0u);
  EXPECT_LT(status.seconds_since_checkpoint(), 0);
  EXPECT_EQ(status.last_checkpoint_seconds(), 0);
  hold_publish_ = true;
  EXPECT_TRUE(AskForCheckpoint().empty());
  Pass(absl::Milliseconds(1500));
  AnswerPublish(1);
  EXPECT_TRUE(Commit(2, 1).ok());
  EXPECT_THAT(coordinator_->Status(now_).late_workers(), ElementsAre());
  Pass(absl::Seconds(2));
  status = coordinator_->Status(now_);
  EXPECT_EQ(status.checkpoints(), 1u);
  EXPECT_EQ(status.seconds_since_checkpoint(), 2);
  EXPECT_EQ(status.last_checkpoint_seconds(), 1.5);
  EXPECT_THAT(status.late_workers(), ElementsAre(0, 2));
  EXPECT_EQ(status.waiting_for(), "clone 0 of 3 (alive) and 1 more");
}

TEST_F(OperatorsTest, StalenessOfPushes) {
  options_.sync = false;
  StartWithClones();
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
    ps::CommitRequest request = CommitRequest(sequence, 0);
    request.mutable_key()->set_position(sequence - 1);
    EXPECT_TRUE(Commit(request).at(0).reply.ok());
  }
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(Counts(status.staleness()),
            (std::map<double, uint64_t>{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(status.staleness().sum(), 6);
}

TEST(CountHistogramTest, LargeValuesAreInTheLastBucket) {
  CountHistogram histogram;
  for (const uint64_t value : {0, 7, 8, 129, 100000}) histogram.Add(value);
  const ps::Histogram proto = histogram.ToProto();
  EXPECT_EQ(proto.counts(0), 1u);
  EXPECT_EQ(proto.upper_bounds(7), 8);
  EXPECT_EQ(proto.counts(7), 2u);
  EXPECT_EQ(proto.counts(proto.counts_size() - 1), 2u);
  EXPECT_EQ(proto.sum(), 100144);
}

}  // namespace
}  // namespace pushpull
