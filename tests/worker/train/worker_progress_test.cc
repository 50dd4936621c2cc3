#include "worker/train/worker_progress.h"

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

CloneState Training(uint64_t step, double loss, double images_per_second) {
  CloneState clone;
  clone.phase = CloneState::Phase::kRunning;
  clone.report.step = step;
  clone.report.num_steps = 200;
  clone.report.loss = loss;
  clone.report.accuracy = 0.5;
  clone.report.learning_rate = 0.004;
  clone.report.images_per_second = images_per_second;
  return clone;
}

CloneState InPhase(CloneState::Phase phase) {
  CloneState clone;
  clone.phase = phase;
  clone.last_death = "killed by signal 9";
  return clone;
}

std::string Line(WorkerProgress progress, const std::vector<CloneState>& clones) {
  std::string waiting_for;
  const std::optional<Progress> combined = progress.Combine(clones, &waiting_for);
  EXPECT_EQ(combined.has_value(), waiting_for.empty());
  return combined.has_value() ? FormatProgress(*combined) : "waiting for " + waiting_for;
}

TEST(WorkerProgressTest, CombinesTheReportsOfAllClones) {
  std::vector<CloneState> clones = {Training(100, 1.0, 60), Training(99, 2.0, 40),
                                    InPhase(CloneState::Phase::kLeft)};
  clones[1].report.staleness = 1;
  EXPECT_EQ(Line(WorkerProgress({}), clones),
            "step 100/200 50.0% loss 1.500 acc 0.500 lr 0.0040 100 img/s (60+40) staleness 0.5");
}

TEST(WorkerProgressTest, CountsEpochsOfTheDataSet) {
  const WorkerProgress progress({.num_examples = 1000, .batch_size = 24});
  EXPECT_EQ(Line(progress, {Training(100, 1.0, 60)}),
            "step 100/200 50.0% epoch 2.4 loss 1.000 acc 0.500 lr 0.0040 60 img/s staleness 0");
}

TEST(WorkerProgressTest, ADetectorHasNoAccuracy) {
  CloneState detector = Training(100, 1.0, 60);
  detector.report.accuracy = -1.0;
  EXPECT_EQ(Line(WorkerProgress({}), {detector}),
            "step 100/200 50.0% loss 1.000 lr 0.0040 60 img/s staleness 0");
}

TEST(WorkerProgressTest, SummarisesTheRun) {
  WorkerProgress progress({});
  std::string waiting_for;
  const auto note = [&](const std::vector<CloneState>& clones) {
    progress.Combine(clones, &waiting_for);
  };
  EXPECT_THAT(progress.Summary(absl::Seconds(5)), ElementsAre("this worker has computed no step"));
  std::vector<CloneState> clones = {Training(100, 2.0, 0), Training(100, 1.0, 0)};
  clones[0].report.images = 900;
  clones[1].report.images = 700;
  note(clones);
  // Clone 0 waits, without and with a step in its report, then its process is replaced.
  clones[0].report = CloneReport();
  clones[0].report.waiting_for = "the parameter server";
  note(clones);
  clones[0] = Training(101, 2.0, 0);
  clones[0].report.images = 1000;
  clones[0].report.waiting_for = "clone 1";
  note(clones);
  clones[0] = InPhase(CloneState::Phase::kRestarting);
  note(clones);
  clones[0] = Training(200, 0.5, 0);
  clones[0].report.images = 300;
  clones[0].report.waiting_for = "the end";
  note(clones);
  EXPECT_THAT(progress.Summary(absl::Milliseconds(4000)),
              ElementsAre("contributed up to step 200 of 200 in 4s: 2000 images, 500 img/s",
                          "last loss 0.750, accuracy 0.500"));
  clones[0].report.accuracy = -1.0;
  clones[0].report.num_steps = clones[1].report.num_steps = 0;
  note(clones);
  EXPECT_THAT(progress.Summary(absl::Milliseconds(62540)),
              ElementsAre("contributed up to step 200 in 1m2.5s: 2000 images, 32 img/s",
                          "last loss 0.750"));
}

TEST(WorkerProgressTest, SaysForWhomItWaits) {
  const WorkerProgress progress({});
  CloneState waits = Training(100, 1.0, 60);
  waits.report.waiting_for = "clone 7 of 9 (never seen)";
  const CloneState trains = Training(100, 1.0, 60);
  EXPECT_EQ(Line(progress, {trains, waits}), "waiting for clone 7 of 9 (never seen)");
  EXPECT_EQ(Line(progress, {waits, InPhase(CloneState::Phase::kStarting)}),
            "waiting for clone 1 of 2 (starting)");
  EXPECT_EQ(Line(progress, {InPhase(CloneState::Phase::kRestarting), waits}),
            "waiting for clone 0 of 2 (killed by signal 9)");
  EXPECT_EQ(Line(progress, {InPhase(CloneState::Phase::kRunning)}), "waiting for the first step");
  EXPECT_EQ(Line(progress, {InPhase(CloneState::Phase::kLeft)}), "waiting for the first step");
}

TEST(WorkerProgressTest, ASpareThatHasEndedCountsNoMore) {
  WorkerProgress progress({});
  const CloneState trains = Training(200, 1.0, 60);
  CloneState spare = Training(40, 3.0, 50);
  spare.phase = CloneState::Phase::kDone;
  spare.report.waiting_for = kWaitOfSpare;
  EXPECT_EQ(Line(progress, {trains, spare}),
            "step 200/200 100.0% loss 1.000 acc 0.500 lr 0.0040 60 img/s staleness 0");
  std::string waiting_for;
  progress.Combine({spare, trains}, &waiting_for);
  EXPECT_THAT(progress.Summary(absl::Seconds(1)), Contains("last loss 1.000, accuracy 0.500"));
}

TEST(WorkerProgressTest, ASpareDoesNotHideThatTheOthersTrain) {
  const WorkerProgress progress({});
  const CloneState trains = Training(100, 1.0, 60);
  CloneState spare = Training(40, 3.0, 50);  // it has trained until the job was scaled
  spare.report.waiting_for = kWaitOfSpare;
  CloneState new_spare = InPhase(CloneState::Phase::kRunning);
  new_spare.report.waiting_for = kWaitOfSpare;
  const std::string line = "step 100/200 50.0% loss 1.000 acc 0.500 lr 0.0040 60 img/s staleness 0";
  EXPECT_EQ(Line(progress, {trains, spare}), line);
  EXPECT_EQ(Line(progress, {spare, new_spare, trains}), line);
  CloneState waits = trains;
  waits.report.waiting_for = "clone 7 of 9 (never seen)";
  EXPECT_EQ(Line(progress, {spare, waits}), "waiting for clone 7 of 9 (never seen)");
  EXPECT_EQ(Line(progress, {spare, InPhase(CloneState::Phase::kRunning)}),
            "waiting for the first step");
  EXPECT_EQ(Line(progress, {spare, InPhase(CloneState::Phase::kRestarting)}),
            "waiting for clone 1 of 2 (killed by signal 9)");
  for (const CloneState::Phase phase : {CloneState::Phase::kLeft, CloneState::Phase::kDone}) {
    EXPECT_EQ(Line(progress, {spare, InPhase(phase)}), absl::StrCat("waiting for ", kWaitOfSpare));
  }
}

}  // namespace
}  // namespace pushpull
