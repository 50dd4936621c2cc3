#include "ps_server/core/checkpoints.h"

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "tests/ps_server/core/coordinator_driver.h"
#include "tests/ps_server/core/part_driver.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using CheckpointsTest = CoordinatorTest;

// Tests Checkpoint calls. Only these calls begin a checkpoint here.
class CheckpointCallsTest : public CoordinatorTest {
 protected:
  CheckpointCallsTest() { options_.save_checkpoints_every = absl::ZeroDuration(); }

  size_t Published() { return Take<coordinator_action::PublishCheckpoint>().size(); }
  void AnswerPublish(uint64_t step, const absl::Status& status = absl::OkStatus()) {
    Send(coordinator_event::CheckpointPublished{step, status});
  }
};

// Tests Checkpoints without the other parts of the coordinator.
class CheckpointsPartTest : public PartTest {
 protected:
  static bool Begins(const Followup& followup) {
    return std::holds_alternative<followup::CallShards>(followup);
  }
  Followup Publish(const absl::Status& status) {
    checkpoints_.OnReplies({ps::SnapshotReply()}, {});
    const auto orders = Take<coordinator_action::PublishCheckpoint>();
    EXPECT_EQ(orders.size(), 1u);
    return checkpoints_.OnPublished({orders.at(0).step, status});
  }

  Checkpoints checkpoints_{options_, job_, &actions_};
};

TEST_F(CheckpointsPartTest, BeginsByTimeAndBySteps) {
  options_.save_checkpoints_every = absl::Seconds(60);
  options_.save_checkpoints_steps = 10;
  checkpoints_.BeginEpoch();
  EXPECT_FALSE(Begins(checkpoints_.StartIfDue())) << "nothing has changed since the epoch began";
  job_.version = 3;
  EXPECT_EQ(checkpoints_.NextWakeup(), job_.now + absl::Seconds(60));
  job_.now += absl::Seconds(60);
  EXPECT_TRUE(Begins(checkpoints_.StartIfDue()));
  EXPECT_FALSE(Begins(checkpoints_.StartIfDue())) << "a checkpoint is already under way";
  EXPECT_TRUE(std::holds_alternative<followup::Published>(Publish(absl::OkStatus())));
  EXPECT_EQ(checkpoints_.durable_step(), 3u);
  job_.version = 9;
  EXPECT_FALSE(Begins(checkpoints_.StartIfDue()));
  job_.version = 10;
  EXPECT_TRUE(Begins(checkpoints_.StartIfDue()));
}

// A shard that restarts begins an epoch, and so does a new process, which goes on from mapped
// state.
TEST_F(CheckpointsPartTest, StepsThatAreNotSavedKeepTheirAgeInTheNextEpoch) {
  options_.save_checkpoints_every = absl::Seconds(60);
  const auto found = [](absl::Duration age) {
    return FoundCheckpoint{.id = {.epoch = 6, .version = 5}, .age = age};
  };
  const FoundCheckpoint declared{.id = {.epoch = 1, .version = 0}, .age = absl::Hours(9)};
  const struct {
    std::optional<FoundCheckpoint> checkpoint;
    uint64_t version;
    int wait;
  } cases[] = {
      {found(absl::Seconds(54)), 6, 6},
      {found(absl::ZeroDuration()), 6, 60},
      {found(absl::Hours(9)), 6, 0},
      {found(absl::InfiniteDuration()), 6, 0},
      {std::nullopt, 6, 0},
      {declared, 6, 0},
      // Everything is saved.
      {found(absl::Hours(9)), 5, 60},
      {declared, 0, 60},
      {std::nullopt, 0, 60},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(&c - cases);
    Checkpoints checkpoints(options_, job_, &actions_);
    job_.version = c.version;
    checkpoints.SetNewest(c.checkpoint);
    checkpoints.BeginEpoch();
    job_.version = 7;
    EXPECT_EQ(checkpoints.NextWakeup(), job_.now + absl::Seconds(c.wait));
    if (c.wait > 0) {
      job_.now += absl::Seconds(c.wait - 1);
      EXPECT_FALSE(Begins(checkpoints.StartIfDue()));
      job_.now += absl::Seconds(1);
    }
    EXPECT_TRUE(Begins(checkpoints.StartIfDue()));
  }
}

TEST_F(CheckpointsPartTest, PausesAfterFailuresGrowLonger) {
  options_.save_checkpoints_steps = 1;
  checkpoints_.BeginEpoch();
  job_.version = 1;
  for (const int seconds : {1, 2, 4}) {
    EXPECT_TRUE(Begins(checkpoints_.StartIfDue()));
    Publish(absl::ResourceExhaustedError("no space left"));
    EXPECT_EQ(Take<coordinator_action::AbandonCheckpoint>().size(), 1u);
    EXPECT_FALSE(Begins(checkpoints_.StartIfDue()));
    EXPECT_EQ(checkpoints_.NextWakeup(), job_.now + absl::Seconds(seconds));
    job_.now += absl::Seconds(seconds);
  }
}

TEST_F(CheckpointsPartTest, AFailureSaysWhichCheckpointIsTheNewest) {
  options_.save_checkpoints_steps = 1;
  checkpoints_.SetNewest(std::nullopt);
  checkpoints_.BeginEpoch();
  const auto warning_of = [this](uint64_t version) {
    job_.version = version;
    job_.now += absl::Seconds(10);
    EXPECT_TRUE(Begins(checkpoints_.StartIfDue()));
    Publish(absl::ResourceExhaustedError("no space left"));
    return Take<coordinator_action::Notice>().at(0).text;
  };
  EXPECT_EQ(warning_of(1),
            "the checkpoint of step 1 failed: no space left; no checkpoint has "
            "been published");
  ps::StatusReply status;
  checkpoints_.AddTo(&status, job_.now);
  EXPECT_FALSE(status.has_checkpoint());
  // The declared variables of an external model.
  checkpoints_.SetNewest(FoundCheckpoint{.id = {.epoch = 7, .version = 0}});
  EXPECT_EQ(warning_of(2),
            "the checkpoint of step 2 failed: no space left; the newest "
            "checkpoint is of step 0");
  checkpoints_.AddTo(&status, job_.now);
  EXPECT_TRUE(status.has_checkpoint());
  EXPECT_EQ(status.durable_step(), 0u);
}

TEST_F(CheckpointsPartTest, ReportsTheThirdFailureOfTheLastCheckpoint) {
  checkpoints_.BeginEpoch();
  job_.version = 1;
  checkpoints_.BeginFinal();
  for (int failures = 1; failures <= 3; ++failures) {
    EXPECT_TRUE(Begins(checkpoints_.StartFinalIfDue()));
    EXPECT_FALSE(checkpoints_.IsSaved());
    const Followup failed = Publish(absl::ResourceExhaustedError("no space left"));
    EXPECT_EQ(std::holds_alternative<followup::FinalCheckpointFailed>(failed), failures == 3);
    job_.now += absl::Seconds(10);
  }
}

TEST_F(CheckpointsPartTest, AFullDiskMayFailTheLastCheckpointForMinutes) {
  checkpoints_.BeginEpoch();
  job_.version = 1;
  checkpoints_.BeginFinal();
  const absl::Duration start = job_.now;
  bool failed = false;
  while (!failed) {
    ASSERT_TRUE(Begins(checkpoints_.StartFinalIfDue()));
    const Followup followup = Publish(MarkPassing(absl::ResourceExhaustedError("no space left")));
    failed = std::holds_alternative<followup::FinalCheckpointFailed>(followup);
    EXPECT_EQ(failed, job_.now - start >= options_.disk_patience);
    if (failed) {
      EXPECT_TRUE(IsPassing(std::get<followup::FinalCheckpointFailed>(followup).reason));
    }
    job_.now = checkpoints_.NextWakeup();
  }
  EXPECT_LE(job_.now - start, 2 * options_.disk_patience);
}

// A scheduler kills the process soon after it has told it to end.
TEST_F(CheckpointsPartTest, AFullDiskFailsTheLastCheckpointOfADrainWithinSeconds) {
  options_.save_checkpoints_steps = 1;
  checkpoints_.BeginEpoch();
  job_.version = 1;
  const absl::Status full = MarkPassing(absl::ResourceExhaustedError("no space left"));
  for (int failures = 0; failures < 6; ++failures) {
    ASSERT_TRUE(Begins(checkpoints_.StartIfDue()));
    Publish(full);
    job_.now = checkpoints_.NextWakeup();
  }
  job_.draining = true;
  checkpoints_.BeginFinal();
  const absl::Duration start = job_.now;
  for (int failures = 1; failures <= 3; ++failures) {
    ASSERT_TRUE(Begins(checkpoints_.StartFinalIfDue()));
    const Followup failed = Publish(full);
    EXPECT_EQ(std::holds_alternative<followup::FinalCheckpointFailed>(failed), failures == 3);
    if (failures < 3) job_.now = checkpoints_.NextWakeup();
  }
  EXPECT_EQ(job_.now - start, absl::Seconds(3)) << "the pauses begin anew";
}

TEST_F(CheckpointsPartTest, AVersionThatIsGoneCountsAsAFailureOnlyTheFourthTimeInARow) {
  options_.save_checkpoints_steps = 1;
  checkpoints_.BeginEpoch();
  const absl::Status gone = absl::FailedPreconditionError("shard 1 is at version 3");
  for (int times = 1; times <= 4; ++times) {
    job_.version = 2 * times;
    checkpoints_.Ask(times);
    EXPECT_TRUE(Begins(checkpoints_.StartIfDue())) << "it is due at once";
    job_.version = 2 * times + 1;
    EXPECT_TRUE(std::holds_alternative<followup::None>(checkpoints_.OnCallFailed(gone, true)));
    EXPECT_EQ(Take<coordinator_action::AbandonCheckpoint>().size(), 1u);
    EXPECT_EQ(Take<coordinator_action::ReplyCheckpoint>().size(), times == 4 ? 4u : 0u);
  }
  EXPECT_FALSE(Begins(checkpoints_.StartIfDue()));
  EXPECT_EQ(checkpoints_.NextWakeup(), job_.now + absl::Seconds(1));
}

TEST_F(CheckpointsPartTest, TheLastCheckpointDoesNotWaitForOneThatWasOvertaken) {
  checkpoints_.BeginEpoch();
  job_.version = 1;
  checkpoints_.Ask(5);
  EXPECT_TRUE(Begins(checkpoints_.StartIfDue()));
  job_.version = 3;
  checkpoints_.BeginFinal();
  const absl::Status gone = absl::FailedPreconditionError("shard 1 is at version 3");
  EXPECT_TRUE(std::holds_alternative<followup::None>(checkpoints_.OnCallFailed(gone, true)));
  EXPECT_TRUE(Take<coordinator_action::ReplyCheckpoint>().empty());
  EXPECT_LE(checkpoints_.NextWakeup(), job_.now);
  EXPECT_TRUE(Begins(checkpoints_.StartFinalIfDue()));
}

TEST_F(CheckpointsPartTest, ATaskThatFailsForAnotherReasonFailsTheCheckpoint) {
  options_.save_checkpoints_steps = 1;
  checkpoints_.BeginEpoch();
  job_.version = 1;
  EXPECT_TRUE(Begins(checkpoints_.StartIfDue()));
  checkpoints_.OnCallFailed(absl::ResourceExhaustedError("no space left"), false);
  EXPECT_FALSE(Begins(checkpoints_.StartIfDue()));
}

TEST_F(CheckpointsPartTest, AReplacedServerStops) {
  checkpoints_.BeginEpoch();
  job_.version = 1;
  checkpoints_.Ask(5);
  EXPECT_TRUE(Begins(checkpoints_.StartIfDue()));
  EXPECT_TRUE(std::holds_alternative<followup::Stop>(Publish(absl::AbortedError("replaced"))));
}

// Tests Checkpoints in a whole coordinator.

TEST_F(CheckpointsTest, SavesAtTheStepIntervalAndAtTheEnd) {
  options_.save_checkpoints_steps = 2;
  options_.limits.num_steps = 5;
  StartWithClones();
  for (uint64_t step = 1; step <= 4; ++step) RunStep(step);
  EXPECT_EQ(coordinator_->durable_step(), 4u);
  EXPECT_FALSE(Heartbeat(0)->training_done());
  Take<coordinator_action::PublishCheckpoint>();
  RunStep(5);
  const auto published = Take<coordinator_action::PublishCheckpoint>();
  ASSERT_EQ(published.size(), 1u);
  EXPECT_EQ(published[0].step, 5u);
  EXPECT_TRUE(published[0].training_done);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  EXPECT_TRUE(Heartbeat(0)->training_done());
  EXPECT_TRUE(Register(1)->training_done());
  EXPECT_EQ(Commit(6, 1).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(CheckpointsTest, AFailedCheckpointIsRepeatedWhileTrainingContinues) {
  options_.save_checkpoints_every = absl::Seconds(60);
  StartWithClones();
  RunStep(1);
  publish_status_ = absl::ResourceExhaustedError("no space left in /train");
  for (int i = 0; i < 8; ++i) {
    Pass(absl::Seconds(9));
    for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(Heartbeat(worker).ok());
  }
  EXPECT_EQ(coordinator_->Status(now_).checkpoint_failures(), 2u);
  EXPECT_EQ(Take<coordinator_action::AbandonCheckpoint>().size(), 2u);
  RunStep(2);
  publish_status_ = absl::OkStatus();
  Pass(absl::Seconds(8));
  EXPECT_EQ(coordinator_->durable_step(), 2u);
}

TEST_F(CheckpointsTest, TheLastCheckpointDoesNotWaitForThePauseAfterAFailure) {
  options_.limits.num_steps = 2;
  options_.save_checkpoints_steps = 1;
  StartWithClones();
  publish_status_ = absl::ResourceExhaustedError("no space left in /train");
  RunStep(1);
  EXPECT_EQ(coordinator_->Status(now_).checkpoint_failures(), 1u);
  publish_status_ = absl::OkStatus();
  RunStep(2);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
}

TEST_F(CheckpointsTest, EarlierFailuresDoNotCountAgainstTheLastCheckpoint) {
  options_.limits.num_steps = 2;
  options_.save_checkpoints_steps = 1;
  StartWithClones();
  hold_publish_ = true;
  RunStep(1);
  RunStep(2);  // while step 1 is being saved
  publish_status_ = absl::ResourceExhaustedError("no space left in /train");
  hold_publish_ = false;
  Send(coordinator_event::CheckpointPublished{1, publish_status_});
  while (coordinator_->Status(now_).checkpoint_failures() < 3) Pass(absl::Seconds(1));
  EXPECT_TRUE(Take<coordinator_action::Stopped>().empty())
      << "only two of the failures were of the final checkpoint";
  publish_status_ = absl::OkStatus();
  for (int i = 0; i < 30; ++i) Pass(absl::Seconds(1));
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
}

TEST_F(CheckpointsTest, StopsWhenTheLastCheckpointCannotBeWritten) {
  options_.limits.num_steps = 1;
  StartWithClones();
  snapshot_status_ = absl::ResourceExhaustedError("no space left");
  RunStep(1);
  EXPECT_TRUE(Take<coordinator_action::Stopped>().empty());
  for (int i = 0; i < 3; ++i) Pass(absl::Seconds(5));
  EXPECT_THAT(std::string(Take<coordinator_action::Stopped>().at(0).reason.message()),
              HasSubstr("no space left"));
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
}

TEST_F(CheckpointCallsTest, CheckpointSavesTheNewestAppliedVersion) {
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
  EXPECT_EQ(Published(), 0u) << "the newest checkpoint already holds this version";
}

TEST_F(CheckpointCallsTest, CheckpointCallsJoinTheCheckpointUnderWay) {
  StartWithClones();
  RunStep(1);
  hold_publish_ = true;
  EXPECT_TRUE(AskForCheckpoint().empty());
  EXPECT_TRUE(AskForCheckpoint().empty());
  RunStep(2);
  EXPECT_TRUE(AskForCheckpoint().empty()) << "the checkpoint under way does not hold step 2";
  EXPECT_EQ(Published(), 1u);
  AnswerPublish(1);
  auto replies = Take<coordinator_action::ReplyCheckpoint>();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[1].reply->step(), 1u);
  EXPECT_EQ(Published(), 1u) << "the next checkpoint must begin at once";
  AnswerPublish(2);
  replies = Take<coordinator_action::ReplyCheckpoint>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].reply->step(), 2u);
}

TEST_F(CheckpointCallsTest, CheckpointWaitsForTheApplyUnderWay) {
  StartWithClones();
  RunStep(1);
  silent_ = true;
  for (uint32_t replica = 0; replica < 3; ++replica) EXPECT_TRUE(Commit(2, replica).ok());
  EXPECT_TRUE(AskForCheckpoint().empty());
  silent_ = false;
  AnswerApply();
  EXPECT_EQ(Take<coordinator_action::ReplyCheckpoint>().at(0).reply->step(), 2u);
}

TEST_F(CheckpointCallsTest, CallersLearnThatTheirCheckpointFailed) {
  StartWithClones();
  RunStep(1);
  hold_publish_ = true;
  EXPECT_TRUE(AskForCheckpoint().empty());
  RunStep(2);
  EXPECT_TRUE(AskForCheckpoint().empty());
  AnswerPublish(1, absl::ResourceExhaustedError("no space left in /train"));
  auto replies = Take<coordinator_action::ReplyCheckpoint>();
  ASSERT_EQ(replies.size(), 1u) << "the second call asked for step 2";
  EXPECT_THAT(std::string(replies[0].reply.status().message()), HasSubstr("no space left"));
  EXPECT_LE(coordinator_->NextWakeup(), now_) << "a call must not wait for the failure pause";
  hold_publish_ = false;
  Pass(absl::ZeroDuration());
  EXPECT_EQ(Take<coordinator_action::ReplyCheckpoint>().at(0).reply->step(), 2u);
}

TEST_F(CheckpointCallsTest, CheckpointIsRefusedWhenThereIsNothingToSave) {
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

TEST_F(CheckpointCallsTest, CheckpointCallsEndWithTheEpoch) {
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

TEST_F(CheckpointCallsTest, ACancelledCheckpointCallIsNotAnswered) {
  StartWithClones();
  RunStep(1);
  hold_publish_ = true;
  EXPECT_TRUE(AskForCheckpoint().empty());
  Send(coordinator_event::Cancel{call_});
  AnswerPublish(1);
  EXPECT_TRUE(Take<coordinator_action::ReplyCheckpoint>().empty());
}

TEST_F(CheckpointCallsTest, StatusReportsCheckpointsAndLateClones) {
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
  EXPECT_THAT(coordinator_->Status(now_).late_clones(), ElementsAre());
  Pass(absl::Seconds(2));
  status = coordinator_->Status(now_);
  EXPECT_EQ(status.checkpoints(), 1u);
  EXPECT_EQ(status.seconds_since_checkpoint(), 2);
  EXPECT_EQ(status.last_checkpoint_seconds(), 1.5);
  EXPECT_THAT(status.late_clones(), ElementsAre(0, 2));
  EXPECT_EQ(status.waiting_for(), "clone 0 of 3 (alive) and 1 more");
}

}  // namespace
}  // namespace pushpull
