// A whole coordinator whose config limits training by train_input_reader.num_epochs.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Two epochs of 15 images are three steps of 10.
constexpr uint64_t kImages = 15;

class CoordinatorEpochsTest : public CoordinatorTest {
 protected:
  CoordinatorEpochsTest() { options_.limits = {.num_epochs = 2, .batch_size = 10}; }

  absl::StatusOr<ps::RegisterReply> RegisterWith(uint32_t worker, uint64_t num_images) {
    ps::RegisterRequest request = RegisterRequest(worker, "");
    request.set_num_images(num_images);
    return Register(request);
  }
  void RegisterAll() {
    for (uint32_t worker = 0; worker < 3; ++worker) {
      EXPECT_TRUE(RegisterWith(worker, kImages).ok());
    }
  }
  // Starts on a checkpoint and without versions in memory.
  void StartOn(const FoundCheckpoint& checkpoint) {
    checkpoint_ = checkpoint;
    Start();
  }
};

TEST_F(CoordinatorEpochsTest, EndsWithTheStepThatEndsTheLastEpoch) {
  for (const bool sync : {true, false}) {
    options_.sync = sync;
    Start();
    EXPECT_EQ(coordinator_->Status(now_).num_steps(), 0u) << "nobody has counted the images yet";
    EXPECT_EQ(RegisterWith(0, kImages)->num_steps(), 3u);
    EXPECT_EQ(coordinator_->Status(now_).num_steps(), 3u);
    RegisterAll();
    for (uint64_t step = 1; step <= 3; ++step) {
      EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
      if (sync) {
        RunStep(step);
      } else {
        ps::CommitRequest push = CommitRequest(1, step - 1);
        push.mutable_key()->set_base_version(step - 1);
        EXPECT_TRUE(Commit(push).at(0).reply.ok());
      }
    }
    EXPECT_EQ(coordinator_->version(), 3u) << "an asynchronous push is a whole batch";
    if (!sync) {
      ps::CommitRequest late = CommitRequest(2, 0);
      late.mutable_key()->set_position(1);
      EXPECT_EQ(Commit(late).at(0).reply->outcome(), ps::PushReply::ALREADY_APPLIED);
    }
    EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
    const auto published = Take<coordinator_action::PublishCheckpoint>();
    ASSERT_EQ(published.size(), 1u);
    EXPECT_TRUE(published[0].training_done);
    EXPECT_EQ(published[0].last_step, 3u);
    EXPECT_EQ(published[0].num_images, kImages);
    EXPECT_EQ(Take<coordinator_action::StepApplied>().back().last_step, 3u);
    EXPECT_TRUE(Heartbeat(0)->training_done());
  }
}

TEST_F(CoordinatorEpochsTest, TheSmallerNumberOfStepsCounts) {
  options_.limits.num_steps = 2;
  Start();
  EXPECT_EQ(coordinator_->Status(now_).num_steps(), 2u);
  RegisterAll();
  RunStep(1);
  RunStep(2);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
}

TEST_F(CoordinatorEpochsTest, RefusesAnotherNumberOfImages) {
  Start();
  EXPECT_TRUE(RegisterWith(0, kImages).ok());
  const absl::Status refusal = RegisterWith(1, 16).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal)) << refusal;
  EXPECT_THAT(std::string(refusal.message()),
              AllOf(HasSubstr("clone 1 (host:1) has 16 training images"), HasSubstr("over 15"),
                    HasSubstr("train_config.num_steps")));
  EXPECT_EQ(RegisterWith(1, kImages)->num_steps(), 3u);
}

TEST_F(CoordinatorEpochsTest, RefusesAnEmptyDataSet) {
  Start();
  const absl::Status refusal = RegisterWith(0, 0).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refusal)) << refusal;
  EXPECT_THAT(std::string(refusal.message()),
              AllOf(HasSubstr("0 training images"), HasSubstr("train_input_reader.num_epochs")));
  EXPECT_EQ(RegisterWith(0, kImages)->num_steps(), 3u);
}

TEST_F(CoordinatorEpochsTest, ARefusedCloneDoesNotDecideTheNumber) {
  Start();
  ps::RegisterRequest request = RegisterRequest(0, "");
  request.set_num_images(100);
  request.set_num_replicas(4);
  EXPECT_TRUE(absl::IsFailedPrecondition(Register(request).status()));
  EXPECT_EQ(RegisterWith(0, kImages)->num_steps(), 3u);
}

TEST_F(CoordinatorEpochsTest, WithoutEpochsTheNumberOfLiveClonesCountsAndNotTheCheckpoints) {
  options_.limits = {.num_steps = 5, .batch_size = 10};
  StartOn({{5, 2}, false, kImages});
  EXPECT_EQ(RegisterWith(0, 0)->num_steps(), 5u);
  EXPECT_EQ(RegisterWith(1, 16)->num_steps(), 5u);
  EXPECT_TRUE(absl::IsAlreadyExists(RegisterWith(2, kImages).status()));
}

TEST_F(CoordinatorEpochsTest, ACheckpointTellsTheNumberToTheNextProcess) {
  StartOn({{5, 2}, false, kImages});
  EXPECT_EQ(coordinator_->Status(now_).num_steps(), 3u) << "no clone has to say it";
  EXPECT_TRUE(absl::IsFailedPrecondition(RegisterWith(0, 16).status()));
  RegisterAll();
  RunStep(3);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
}

TEST_F(CoordinatorEpochsTest, AFinishedRunEndsWithoutAClone) {
  StartOn({{5, 3}, true, kImages});
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  EXPECT_TRUE(Take<coordinator_action::PublishCheckpoint>().empty());
  EXPECT_EQ(coordinator_->Status(now_).num_steps(), 3u);
}

TEST_F(CoordinatorEpochsTest, MoreEpochsContinueAFinishedRun) {
  options_.limits.num_epochs = 3;  // 45 images
  StartOn({{5, 3}, true, kImages});
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
  RegisterAll();
  RunStep(4);
  RunStep(5);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
}

TEST_F(CoordinatorEpochsTest, FewerEpochsEndTheRunAtItsVersion) {
  options_.limits.num_epochs = 1;  // two steps
  StartOn({{5, 4}, false, kImages});
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  const auto published = Take<coordinator_action::PublishCheckpoint>();
  ASSERT_EQ(published.size(), 1u) << "an evaluator has to learn that training is done";
  EXPECT_EQ(published[0].step, 4u);
  EXPECT_TRUE(published[0].training_done);
  EXPECT_EQ(coordinator_->version(), 4u);
}

TEST_F(CoordinatorEpochsTest, AMarkThatCannotBeWrittenStopsTheJob) {
  options_.limits.num_epochs = 1;
  publish_status_ = absl::ResourceExhaustedError("no space left");
  StartOn({{5, 4}, false, kImages});
  for (int i = 0; i < 3; ++i) Pass(absl::Seconds(5));
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
  EXPECT_EQ(Take<coordinator_action::Stopped>().size(), 1u);
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::STOPPED);
}

TEST_F(CoordinatorEpochsTest, ALastCheckpointThatAFullDiskPreventsIsLeftToTheNextServer) {
  publish_status_ = MarkPassing(absl::ResourceExhaustedError("no space left"));
  Start();
  RegisterAll();
  for (uint64_t step = 1; step <= 3; ++step) RunStep(step);
  for (int i = 0; i < 4; ++i) Pass(options_.disk_patience / 4 - absl::Seconds(1));
  EXPECT_TRUE(Take<coordinator_action::Stopped>().empty());
  for (int i = 0; i < 2; ++i) Pass(absl::Minutes(2));
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
  const auto stopped = Take<coordinator_action::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_TRUE(IsPassing(stopped[0].reason)) << stopped[0].reason;
  EXPECT_EQ(KindOf(RegisterWith(0, kImages).status()), ps::ErrorDetail::DRAINING);
  EXPECT_EQ(KindOf(Heartbeat(0).status()), ps::ErrorDetail::DRAINING);
  EXPECT_EQ(KindOf(Commit(4, 0).status()), ps::ErrorDetail::DRAINING);
}

TEST_F(CoordinatorEpochsTest, ADrainDoesNotWaitForTheDiskOfTheLastCheckpoint) {
  publish_status_ = MarkPassing(absl::ResourceExhaustedError("no space left"));
  Start();
  RegisterAll();
  for (uint64_t step = 1; step <= 3; ++step) RunStep(step);
  for (int i = 0; i < 3; ++i) Pass(options_.disk_patience / 4);
  Send(coordinator_event::Drain{});
  for (int i = 0; i < 3; ++i) Pass(absl::Seconds(2));
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_TRUE(Take<coordinator_action::Stopped>().empty());
  EXPECT_THAT(Take<coordinator_action::Notice>().back().text,
              HasSubstr("no space left; the server ends without a checkpoint of step 3; no "
                        "checkpoint has been published"));
}

// The server was killed after the last step and before its first checkpoint.
TEST_F(CoordinatorEpochsTest, ACloneMayTellThatTheVersionInMemoryIsTheLast) {
  options_.save_checkpoints_every = absl::ZeroDuration();  // none is due before
  held_ = {{6, 3}};
  Start();
  EXPECT_EQ(coordinator_->version(), 3u);
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
  hold_publish_ = true;
  const auto reply = RegisterWith(0, kImages);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->num_steps(), 3u);
  EXPECT_FALSE(reply->training_done()) << "the last checkpoint is not published yet";
  Send(coordinator_event::CheckpointPublished{3, absl::OkStatus()});
  EXPECT_TRUE(Take<coordinator_action::PublishCheckpoint>().at(0).training_done);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  EXPECT_TRUE(Heartbeat(0)->training_done());
}

// This is the same restart, except that a checkpoint of the version was under way when the clone
// came.
TEST_F(CoordinatorEpochsTest, ACheckpointThatDoesNotSaySoIsPublishedAgain) {
  held_ = {{6, 3}};
  hold_publish_ = true;
  Start();
  EXPECT_TRUE(AskForCheckpoint().empty());
  EXPECT_FALSE(Take<coordinator_action::PublishCheckpoint>().at(0).training_done);
  EXPECT_EQ(RegisterWith(0, kImages)->num_steps(), 3u);
  EXPECT_TRUE(Take<coordinator_action::PublishCheckpoint>().empty()) << "one at a time";
  hold_publish_ = false;
  Send(coordinator_event::CheckpointPublished{3, absl::OkStatus()});
  const auto published = Take<coordinator_action::PublishCheckpoint>();
  ASSERT_EQ(published.size(), 1u);
  EXPECT_TRUE(published[0].training_done);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
}

TEST_F(CoordinatorEpochsTest, FewerStepsMarkTheLastCheckpointToo) {
  options_.limits = {.num_steps = 4, .batch_size = 10};
  StartOn({{5, 4}, false, 0});
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  EXPECT_TRUE(Take<coordinator_action::PublishCheckpoint>().at(0).training_done);
}

TEST_F(CoordinatorEpochsTest, SilentTasksHaveNotEndedWithARunThatIsNotMarked) {
  options_.tasks = 2;
  silent_ = true;
  options_.limits.num_epochs = 1;
  StartOn({{5, 4}, false, kImages});
  Pass(10 * options_.lease);
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
}

}  // namespace
}  // namespace pushpull
