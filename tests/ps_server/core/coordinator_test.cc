// Tests what involves several parts of the coordinator: drains, and the report of what it waits
// for. Each part also has its own test file.
#include "ps_server/core/coordinator.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

TEST_F(CoordinatorTest, ReportsWhichClonesItWaitsFor) {
  Start();
  EXPECT_TRUE(Register(0).ok());
  EXPECT_TRUE(Register(1).ok());
  now_ += absl::Seconds(35);
  EXPECT_EQ(coordinator_->WaitingFor(now_), "clone 0 of 3 (alive) and 2 more");
  now_ -= absl::Seconds(35);
  EXPECT_TRUE(Commit(1, 0).ok());
  EXPECT_TRUE(Commit(1, 1).ok());
  now_ += absl::Seconds(35);
  EXPECT_EQ(coordinator_->WaitingFor(now_), "clone 2 of 3 (never seen)");
  EXPECT_EQ(coordinator_->WaitingSeconds(now_), 35);
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(status.clones_size(), 3);
  EXPECT_LT(status.clones(2).seconds_since_seen(), 0);
  EXPECT_EQ(status.clones(1).seconds_since_seen(), 35);
  // The coordinator waits for the missing clone without a time limit.
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(Heartbeat(0).ok());
    EXPECT_TRUE(Heartbeat(1).ok());
    Pass(absl::Seconds(3));
  }
  EXPECT_EQ(Heartbeat(0)->grants_size(), 1);
  EXPECT_THAT(Heartbeat(0)->waiting_for(), HasSubstr("never seen"));
}

class SlowStepsTest : public CoordinatorTest {
 protected:
  // All clones live on and nobody commits.
  void Compute(absl::Duration duration) {
    for (; duration > absl::ZeroDuration(); duration -= absl::Seconds(1)) {
      now_ += std::min(duration, absl::Seconds(1));
      for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(Heartbeat(worker).ok());
    }
  }
  std::string Late() {
    const ps::StatusReply status = coordinator_->Status(now_);
    EXPECT_EQ(status.waiting_for().empty(), status.late_clones().empty());
    EXPECT_EQ(status.waiting_seconds() > 0, !status.late_clones().empty());
    return absl::StrCat(absl::StrJoin(status.late_clones(), ","), " ", status.waiting_seconds());
  }
};

TEST_F(SlowStepsTest, AStepOfTheUsualLengthWaitsForNobody) {
  StartWithClones();
  Compute(absl::Seconds(60));  // the clones start
  RunStep(1);
  for (uint64_t step = 2; step <= 6; ++step) {
    Compute(absl::Seconds(step == 4 ? 100 : 3.5));  // one slow step changes nothing
    if (step != 4) {
      EXPECT_EQ(Late(), step == 2 ? "0,1,2 3.5" : " 0") << "step 1 does not count: " << step;
    }
    RunStep(step);
  }
  Compute(absl::Seconds(6.5));
  EXPECT_EQ(Late(), " 0");
  Compute(absl::Seconds(0.5));
  EXPECT_EQ(Late(), "0,1,2 3.5") << "twice the usual time has passed";
}

TEST_F(SlowStepsTest, AStepWaitsForAStragglerTwoSecondsAfterAnotherCloneHasCommitted) {
  StartWithClones();
  RunStep(1);
  for (uint64_t step = 2; step <= 4; ++step) {
    Compute(absl::Seconds(30));
    RunStep(step);
  }
  Compute(absl::Seconds(10));
  EXPECT_TRUE(Commit(5, 1).ok());
  Compute(absl::Seconds(1.5));
  EXPECT_EQ(Late(), " 0");
  EXPECT_TRUE(Commit(5, 2).ok());
  Compute(absl::Seconds(0.5));
  EXPECT_EQ(Late(), "0 2");
}

TEST_F(SlowStepsTest, ACloneThatComputesSeveralReplicasIsNotLateForItsOwnCommit) {
  StartWithClones();
  RunStep(1);
  for (uint64_t step = 2; step <= 4; ++step) {
    Compute(absl::Seconds(30));
    RunStep(step);
  }
  EXPECT_TRUE(Evict(2).ok());
  EXPECT_TRUE(Heartbeat(0).ok());
  EXPECT_TRUE(Heartbeat(1).ok());
  const uint32_t heir = coordinator_->Status(now_).clones(0).replicas_size() == 2 ? 0 : 1;
  ps::CommitRequest own = CommitRequest(5, heir);
  EXPECT_TRUE(Commit(own).at(0).reply.ok());
  now_ += absl::Seconds(5);
  EXPECT_EQ(Late(), absl::StrCat(1 - heir, " 5")) << "only the other clone is late";
}

// Answers the calls that the two shards hold: that of shard 0 well, that of shard 1 with an error.
class SilentShardTest : public CoordinatorTest {
 protected:
  SilentShardTest() { options_.tasks = 2; }

  void AnswerWithoutShard1() {
    for (const auto& call : Take<coordinator_action::CallShard>()) {
      Send(coordinator_event::ShardReplied{
          call.rpc, call.shard == 0 ? ShardAnswer(call) : absl::UnavailableError("gone")});
    }
  }
};

// The clones that have pushed to the other shard cannot complete the step, so they are not to
// blame.
TEST_F(SilentShardTest, AShardThatAnswersNoPollIsNamedBeforeLateClones) {
  StartWithClones();
  EXPECT_TRUE(Commit(1, 0).ok());
  Take<coordinator_action::CallShard>();
  silent_ = true;
  Pass(absl::Seconds(1));
  AnswerWithoutShard1();
  EXPECT_EQ(coordinator_->WaitingFor(now_), "");
  Pass(absl::Seconds(2));
  EXPECT_EQ(coordinator_->WaitingFor(now_), "shard 1 of 2 (gone)");
  EXPECT_EQ(coordinator_->WaitingSeconds(now_), 2);
  EXPECT_EQ(Heartbeat(0)->waiting_for(), "shard 1 of 2 (gone)");
}

// A task that hears nothing from task 0 for five seconds takes it for gone.
TEST_F(SilentShardTest, AShardThatHangsDoesNotKeepTheOthersFromBeingPolled) {
  options_.tasks = 3;
  boot_ids_[2] = 1;
  StartWithClones();
  Take<coordinator_action::CallShard>();
  silent_ = true;
  int polls_of_1 = 0;
  int polls_of_2 = 0;
  for (int second = 0; second < 10; ++second) {
    Pass(absl::Seconds(1));
    for (const auto& call : Take<coordinator_action::CallShard>()) {
      polls_of_1 += call.shard == 1 ? 1 : 0;
      polls_of_2 += call.shard == 2 ? 1 : 0;
      if (call.shard != 2) Send(coordinator_event::ShardReplied{call.rpc, ShardAnswer(call)});
    }
  }
  EXPECT_EQ(polls_of_1, 10);
  EXPECT_EQ(polls_of_2, 1) << "its answer is still awaited";
  EXPECT_EQ(coordinator_->WaitingFor(now_), "shard 2 of 3");
}

TEST_F(SilentShardTest, ClonesHearWhichShardKeepsTheServerFromStarting) {
  silent_ = true;
  Start();
  AnswerWithoutShard1();
  EXPECT_EQ(Register(0).status().message(),
            "the server is starting; it waits for the shards to say which versions are in memory");
  Pass(absl::Seconds(2));
  const absl::Status status = Register(0).status();
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::NOT_READY);
  EXPECT_EQ(status.message(),
            "the server is starting; it waits for shard 1 of 2 (gone) to say which versions are in "
            "memory");
}

TEST_F(SilentShardTest, TheWaitForTheLastCheckpointIsNamed) {
  options_.limits.num_steps = 1;
  StartWithClones();
  snapshot_status_ = absl::UnavailableError("gone");
  RunStep(1);
  EXPECT_EQ(coordinator_->WaitingFor(now_), "");
  Pass(absl::Seconds(2));
  EXPECT_EQ(Heartbeat(0)->waiting_for(), "the checkpoint of step 1 by shard 0 of 2 (gone)");
  EXPECT_EQ(coordinator_->WaitingSeconds(now_), 2);
  snapshot_status_ = absl::OkStatus();
  hold_publish_ = true;
  Pass(absl::Seconds(5));
  EXPECT_EQ(Heartbeat(0)->waiting_for(), "the checkpoint of step 1");
  EXPECT_EQ(coordinator_->WaitingSeconds(now_), 7);
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
}

// Membership::Renew refuses it; no later check of a commit knows who is registered.
TEST_F(CoordinatorTest, ACommitOfACloneThatHasToRegisterAgainIsRefused) {
  Start();
  ps::RegisterRequest old_data = RegisterRequest(0, "");
  old_data.set_num_images(1000);
  EXPECT_TRUE(Register(old_data).ok());
  Pass(options_.lease);
  ps::RegisterRequest other_data = RegisterRequest(1, "");
  other_data.set_num_images(1200);
  EXPECT_TRUE(Register(other_data).ok());
  EXPECT_EQ(KindOf(Commit(1, 0).status()), ps::ErrorDetail::EPOCH_CHANGED);
}

TEST_F(CoordinatorTest, DrainsAfterTheOpenStep) {
  StartWithClones();
  RunStep(1);
  EXPECT_TRUE(Commit(2, 0).ok());
  Send(coordinator_event::Drain{});
  EXPECT_EQ(KindOf(Register(1).status()), ps::ErrorDetail::DRAINING);
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
  EXPECT_TRUE(Commit(2, 1).ok());
  EXPECT_TRUE(Commit(2, 2).ok());
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_EQ(coordinator_->durable_step(), 2u);
  EXPECT_EQ(KindOf(Commit(3, 0).status()), ps::ErrorDetail::DRAINING);
}

TEST_F(CoordinatorTest, ADrainInTheLastStepFinishesTrainingAndTellsLateClones) {
  options_.limits.num_steps = 2;
  StartWithClones();
  RunStep(1);
  EXPECT_TRUE(Commit(2, 0).ok());
  Send(coordinator_event::Drain{});
  EXPECT_TRUE(Commit(2, 1).ok());
  EXPECT_TRUE(Commit(2, 2).ok());
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  const auto reply = Register(1);  // a clone that was restarted during the drain
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->training_done());
}

TEST_F(CoordinatorTest, DrainGivesUpAStepThatNobodyCompletes) {
  StartWithClones();
  RunStep(1);
  EXPECT_TRUE(Commit(2, 0).ok());
  Send(coordinator_event::Drain{});
  EXPECT_LE(coordinator_->NextWakeup(), now_ + absl::Seconds(5));
  Pass(absl::Seconds(5));
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_EQ(coordinator_->durable_step(), 1u);
}

TEST_F(CoordinatorTest, ADrainWithASilentShardEndsAtItsTimeLimit) {
  StartWithClones();
  RunStep(1);
  silent_ = true;
  Send(coordinator_event::Drain{});
  Pass(options_.drain_limit - absl::Seconds(1));
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
  EXPECT_LE(coordinator_->NextWakeup(), now_ + absl::Seconds(1));
  Take<coordinator_action::Notice>();
  Pass(absl::Seconds(1));
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_EQ(coordinator_->durable_step(), 0u);
  const auto notices = Take<coordinator_action::Notice>();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0].text, HasSubstr("without a checkpoint of step 1"));
  EXPECT_EQ(coordinator_->NextWakeup(), absl::InfiniteDuration());
  Pass(absl::Seconds(60));
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
}

// The new epoch begins, but its shards have not told their state yet when the drain comes.
class DrainBetweenEpochsTest : public CoordinatorTest {
 protected:
  DrainBetweenEpochsTest() { options_.tasks = 2; }
  void DrainWhileShardsAreAsked() {
    RestartAShard();
    held_ = {{7, 1}};
    Send(coordinator_event::Drain{});
  }
  void RestartAShard() {
    StartWithClones();
    RunStep(1);
    boot_ids_[1] = 2;
    silent_ = true;
    Take<coordinator_action::CallShard>();
    Pass(absl::Seconds(1));
    AnswerCalls();  // those that look for restarted shards
    EXPECT_EQ(coordinator_->epoch(), 8u);
    Take<coordinator_action::Notice>();
  }
  void AnswerCalls() {
    for (const auto& call : Take<coordinator_action::CallShard>()) {
      Send(coordinator_event::ShardReplied{call.rpc, ShardAnswer(call)});
    }
  }
};

TEST_F(DrainBetweenEpochsTest, SavesTheVersionWhenTheNextEpochServes) {
  DrainWhileShardsAreAsked();
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
  silent_ = false;
  AnswerCalls();
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_EQ(coordinator_->durable_step(), 1u);
}

TEST_F(DrainBetweenEpochsTest, DoesNotBeginToRestoreWhatIsOnTheDisk) {
  RestartAShard();  // no shard holds a version any more
  Send(coordinator_event::Drain{});
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty()) << "a shard may hold a version";
  AnswerCalls();
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_TRUE(Take<coordinator_action::CallShard>().empty());
}

TEST_F(DrainBetweenEpochsTest, BreaksOffTheRestoreOfWhatIsOnTheDisk) {
  RestartAShard();
  AnswerCalls();
  Send(coordinator_event::Drain{});
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
}

TEST_F(DrainBetweenEpochsTest, SaysAtItsTimeLimitWhatIsNotSaved) {
  DrainWhileShardsAreAsked();
  Pass(options_.drain_limit);
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  const auto notices = Take<coordinator_action::Notice>();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(
      notices[0].text,
      HasSubstr("without a checkpoint of step 1; no checkpoint has been published; it waited "
                "for shard 0 of 2"));
}

TEST_F(CoordinatorTest, ADrainBeforeTheServerHasServedEndsAtOnce) {
  silent_ = true;
  Start();
  Send(coordinator_event::Drain{});
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
}

TEST_F(CoordinatorTest, ADrainCallIsAnsweredAtOnceAndEndsTheProcess) {
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
  EXPECT_EQ(coordinator_->durable_step(), 2u) << "no applied step may be lost";
  Send(coordinator_event::Drain{++call_});
  EXPECT_EQ(Take<coordinator_action::ReplyDrain>().at(0).reply->version(), 2u);
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
}

TEST_F(CoordinatorTest, ADrainCallEndsAProcessThatHasFinishedTraining) {
  options_.limits.num_steps = 1;
  StartWithClones();
  RunStep(1);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  Send(coordinator_event::Drain{});
  EXPECT_TRUE(Take<coordinator_action::EndWanted>().empty()) << "no administrator called Drain";
  Send(coordinator_event::Drain{++call_});
  EXPECT_EQ(Take<coordinator_action::EndWanted>().size(), 1u);
  EXPECT_EQ(Take<coordinator_action::ReplyDrain>().at(0).reply->version(), 1u);
}

// A server may stay for weeks after the end of training.
TEST_F(CoordinatorTest, ClonesThatLeaveAfterTheEndOfTrainingAreLost) {
  options_.limits.num_steps = 1;
  StartWithClones();
  RunStep(1);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  EXPECT_TRUE(coordinator_->Status(now_).clones(0).alive());
  EXPECT_LE(coordinator_->NextWakeup(), now_ + options_.lease);
  Pass(options_.lease);
  EXPECT_FALSE(coordinator_->Status(now_).clones(0).alive());
  EXPECT_EQ(coordinator_->NextWakeup(), absl::InfiniteDuration()) << "nothing is due any more";
}

TEST_F(CoordinatorTest, AStoppedServerRefusesToDrain) {
  StartWithClones();
  Commit(CommitRequest(1, 1, 0));
  Send(coordinator_event::Drain{++call_});
  EXPECT_EQ(KindOf(Take<coordinator_action::ReplyDrain>().at(0).reply.status()),
            ps::ErrorDetail::STOPPED);
  EXPECT_TRUE(Take<coordinator_action::EndWanted>().empty());
  Send(coordinator_event::Drain{});
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty()) << "clones must learn the reason";
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::STOPPED);
}

}  // namespace
}  // namespace pushpull
