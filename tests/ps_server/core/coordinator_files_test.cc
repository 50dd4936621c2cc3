// How a coordinator takes its train_dir over, and what it does when another server has.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

using CoordinatorFilesTest = CoordinatorTest;

TEST_F(CoordinatorFilesTest, TrainDirIsWrittenOnceAndBeforeAnybodyIsServed) {
  Start();
  size_t take_over = actions_.size();
  size_t serving = actions_.size();
  for (size_t i = 0; i < actions_.size(); ++i) {
    if (std::holds_alternative<coordinator_action::TakeOver>(actions_[i])) take_over = i;
    if (std::holds_alternative<coordinator_action::Serving>(actions_[i])) serving = i;
  }
  ASSERT_LT(take_over, serving);
  ASSERT_LT(serving, actions_.size());
  EXPECT_EQ(Take<coordinator_action::TakeOver>().size(), 1u);
}

TEST_F(CoordinatorFilesTest, ATrainDirThatCannotBeWrittenStopsTheJob) {
  take_over_status_ = absl::ResourceExhaustedError("no space left in /train");
  Start();
  const auto stopped = Take<coordinator_action::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_THAT(std::string(stopped[0].reason.message()), HasSubstr("no space left"));
  EXPECT_TRUE(Take<coordinator_action::Serving>().empty());
}

TEST_F(CoordinatorFilesTest, AServerThatHasBeenReplacedSendsItsClonesToTheOther) {
  options_.save_checkpoints_every = absl::ZeroDuration();
  options_.save_checkpoints_steps = 1;
  publish_status_ = absl::AbortedError("another server has taken the folder over");
  StartWithClones();
  RunStep(1);
  const auto stopped = Take<coordinator_action::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_TRUE(absl::IsAborted(stopped[0].reason));
  // DRAINING is UNAVAILABLE: a clone asks again, and finds the other server.
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::DRAINING);
  EXPECT_EQ(KindOf(Commit(2, 0).status()), ps::ErrorDetail::DRAINING);
}

TEST_F(CoordinatorFilesTest, AnEpochFileThatHasGoneBackIsNotBelieved) {
  stored_epoch_ = 3;
  held_ = {{9, 40}};
  Start();
  now_ += absl::Seconds(10);  // the pause between epochs in a row
  Send(coordinator_event::Tick{});
  const auto serving = Take<coordinator_action::Serving>();
  ASSERT_EQ(serving.size(), 1u);
  EXPECT_EQ(serving[0].epoch, 10u);
  EXPECT_EQ(serving[0].version, 40u);
}

TEST_F(CoordinatorFilesTest, AFinishedRunEndsWithoutTasksThatHaveEndedBefore) {
  options_.tasks = 2;
  options_.num_steps = 40;
  checkpoint_ = VersionId{5, 40};
  silent_ = true;
  Start();
  Pass(options_.lease / 2);
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
  EXPECT_LE(coordinator_->NextWakeup(), now_ + options_.lease / 2);
  Pass(options_.lease / 2);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  EXPECT_EQ(coordinator_->version(), 40u);
  EXPECT_EQ(coordinator_->durable_step(), 40u);
  // It has recovered nothing, so it owns nothing in train_dir.
  EXPECT_TRUE(Take<coordinator_action::TakeOver>().empty());
  const auto reply = Register(0);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->training_done());
}

TEST_F(CoordinatorFilesTest, AnUnfinishedRunWaitsForSilentTasks) {
  options_.tasks = 2;
  silent_ = true;
  for (const bool goes_back : {false, true}) {
    options_.num_steps = 40;
    options_.from_checkpoint = goes_back;
    checkpoint_ = VersionId{5, goes_back ? 40u : 39u};
    Start();
    Pass(10 * options_.lease);
    EXPECT_TRUE(Take<coordinator_action::Finished>().empty()) << goes_back;
  }
}

}  // namespace
}  // namespace pushpull
