#include "ps_server/runtime/training_monitor.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

#include "common/base/record_io.h"
#include "tests/testkit/fake_clock.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

using Scalars = std::map<std::string, float>;

std::map<int64_t, Scalars> ReadScalars(FileSystem& files, const std::string& path) {
  std::map<int64_t, Scalars> result;
  auto file = files.OpenForRead(path);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return result;
  RecordReader reader(file->get(), path);
  std::string record;
  for (;;) {
    const absl::StatusOr<bool> more = reader.Next(&record);
    EXPECT_TRUE(more.ok()) << more.status();
    if (!more.ok() || !*more) return result;
    event::Event event;
    EXPECT_TRUE(event.ParseFromString(record));
    for (const auto& value : event.summary().value()) {
      result[event.step()][value.tag()] = value.simple_value();
    }
  }
}

coordinator_action::StepApplied::Part Part(uint32_t replica, uint64_t samples, double loss,
                                           double accuracy) {
  coordinator_action::StepApplied::Part part;
  part.replica = replica;
  part.worker_id = replica;
  part.samples = samples;
  for (const auto& [name, value] :
       std::map<std::string, double>{{"Loss/total_loss", loss}, {"accuracy", accuracy}}) {
    ps::Metric& metric = part.metrics.emplace_back();
    metric.set_name(name);
    metric.set_value(value);
  }
  return part;
}

class TrainingMonitorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    job_ = std::make_unique<JobSpec>(JobSpec::Create(
        MakeTinyConfig("optimizer { momentum_optimizer { learning_rate { "
                       "exponential_decay_learning_rate { initial_learning_rate: 0.5 "
                       "decay_steps: 2 decay_factor: 0.5 staircase: true } } } }"),
        true, 1));
    auto events = EventWriter::Create(&files_, folder_.path());
    ASSERT_TRUE(events.ok()) << events.status();
    events_ = *std::move(events);
  }

  TestFolder folder_;
  PosixFileSystem files_;
  FakeClock clock_;
  std::unique_ptr<JobSpec> job_;
  std::unique_ptr<EventWriter> events_;
};

TEST_F(TrainingMonitorTest, WritesMeansWeightedBySamplesAtMultiplesOfTheInterval) {
  TrainingMonitor monitor(job_.get(), &clock_);
  monitor.WriteTo(events_.get());
  clock_.Advance(absl::Seconds(100));  // no clone is there yet
  coordinator_action::StepApplied step;
  step.step = 1;
  step.last_step = 4000;  // so scalars are written every other step
  step.parts = {Part(0, 10, 1.0, 0.5), Part(1, 11, 2.0, 1.0)};
  monitor.StepApplied(step);
  EXPECT_DOUBLE_EQ(monitor.Figures().loss, (10.0 + 22.0) / 21.0);
  EXPECT_DOUBLE_EQ(monitor.Figures().accuracy, (5.0 + 11.0) / 21.0);
  EXPECT_EQ(monitor.Figures().steps_per_second, 0.0) << "it is not known how long it took";
  clock_.Advance(absl::Seconds(4));
  step.step = 2;
  step.staleness = 3;
  // A void contribution has no weight.
  step.parts = {Part(0, 10, 3.0, 0.5), Part(1, 0, 1000.0, 0.0)};
  monitor.StepApplied(step);
  EXPECT_DOUBLE_EQ(monitor.Figures().loss, 3.0);
  EXPECT_EQ(monitor.Figures().step, 2);
  EXPECT_EQ(monitor.Figures().staleness, 3);
  EXPECT_DOUBLE_EQ(monitor.Figures().steps_per_second, 0.25);
  EXPECT_DOUBLE_EQ(monitor.Figures().images_per_second, 10.0 / 4.0);
  EXPECT_EQ(monitor.Figures().images, 31);
  EXPECT_EQ(monitor.Figures().losses, 2);
  EXPECT_EQ(monitor.Figures().clone_loss, (std::map<uint32_t, double>{{0, 3.0}, {1, 2.0}}));
  step.step = 3;
  step.staleness = 0;
  monitor.StepApplied(step);
  EXPECT_DOUBLE_EQ(monitor.Figures().learning_rate, 0.25) << "the rate of the step counted from 0";
  ASSERT_TRUE(events_->Close().ok());
  const auto scalars = ReadScalars(files_, events_->path());
  ASSERT_EQ(scalars.count(1), 0);
  ASSERT_EQ(scalars.count(2), 1);
  ASSERT_EQ(scalars.count(3), 0);
  Scalars at = scalars.at(2);
  EXPECT_FLOAT_EQ(at["Loss/total_loss"], (10.0 + 22.0 + 30.0) / 31.0);
  EXPECT_FLOAT_EQ(at["clone_loss/0"], 2.0);
  EXPECT_FLOAT_EQ(at["clone_loss/1"], 2.0);
  EXPECT_FLOAT_EQ(at["accuracy"], (5.0 + 11.0 + 5.0) / 31.0);
  EXPECT_FLOAT_EQ(at["learning_rate"], 0.5);
  EXPECT_FLOAT_EQ(at["staleness"], 1.5);
  EXPECT_FLOAT_EQ(at["global_step/sec"], 0.25);
  EXPECT_FLOAT_EQ(at["images/sec"], 10.0 / 4.0);
  EXPECT_EQ(at.size(), 8);
}

TEST_F(TrainingMonitorTest, AVeryLargeLossIsForgottenOnceItIsTaken) {
  TrainingMonitor monitor(job_.get(), &clock_);
  coordinator_action::StepApplied step;
  for (const double loss : {1e20, 2.0, 4.0, std::nan("")}) {
    ++step.step;
    step.parts = {Part(0, 10, loss, 0.5)};
    monitor.StepApplied(step);
    if (step.step == 1) {
      EXPECT_EQ(monitor.TakeLosses().sum, 1e20);
    }
  }
  const LossSum losses = monitor.TakeLosses();
  EXPECT_EQ(losses.steps, 2);
  EXPECT_EQ(losses.sum, 6.0);
  EXPECT_EQ(monitor.TakeLosses().steps, 0);
}

TEST_F(TrainingMonitorTest, ADiskThatDoesNotAnswerHoldsUpNothing) {
  MemoryFileSystem files;
  EventWriterOptions options;
  options.flush_interval = absl::Milliseconds(1);
  auto events = EventWriter::Create(&files, "/d", options);
  ASSERT_TRUE(events.ok()) << events.status();
  absl::Notification hangs, answers;
  files.BeforeAppend([&] {
    if (!hangs.HasBeenNotified()) hangs.Notify();
    answers.WaitForNotification();
  });
  TrainingMonitor monitor(job_.get(), &clock_);
  monitor.WriteTo(events->get());
  coordinator_action::StepApplied step;
  step.parts = {Part(0, 10, 1.0, 0.5)};
  step.last_step = 2000;  // scalars are written every step
  step.step = 1;
  monitor.StepApplied(step);
  hangs.WaitForNotification();
  for (step.step = 2; step.step <= 1000; ++step.step) monitor.StepApplied(step);
  EXPECT_EQ(monitor.Figures().step, 1000);
  answers.Notify();
  EXPECT_EQ((*events)->Close(), absl::OkStatus());
  EXPECT_EQ(ReadScalars(files, (*events)->path()).size(), 1000u);
}

// A program may put the number of the step into a metric's name.
TEST_F(TrainingMonitorTest, LeavesOutMetricsWithEverNewNames) {
  TrainingMonitor monitor(job_.get(), &clock_);
  monitor.WriteTo(events_.get());
  const WarningSink log;
  coordinator_action::StepApplied step;
  step.last_step = 4'000'000;  // scalars are written every 2000 steps
  for (step.step = 1; step.step <= 2000; ++step.step) {
    step.parts = {Part(0, 10, 1.0, 0.5), Part(1, 21, 2.0, 1.0)};
    step.parts[1].metrics[0].set_name(absl::StrCat("of step ", step.step));
    monitor.StepApplied(step);
  }
  EXPECT_EQ(log.Count("clone 1 reports a metric \"of step 999\""), 1);
  EXPECT_EQ(log.warnings().size(), 1u);
  ASSERT_TRUE(events_->Close().ok());
  const Scalars scalars = ReadScalars(files_, events_->path()).at(2000);
  EXPECT_EQ(scalars.count("of step 998"), 1);
  EXPECT_EQ(scalars.count("of step 999"), 0);
  EXPECT_EQ(scalars.count("Loss/total_loss"), 1);
  EXPECT_EQ(scalars.size(), TrainingMonitor::kMaxMetricNames + 3)
      << "with the loss of clone 0, the learning rate and the staleness";
}

TEST_F(TrainingMonitorTest, RatesFallWhenNoStepComes) {
  TrainingMonitor monitor(job_.get(), &clock_);
  coordinator_action::StepApplied step;
  step.parts = {Part(0, 10, 1.0, 0.5)};
  const auto apply = [&] {
    ++step.step;
    monitor.StepApplied(step);
  };
  for (int i = 0; i < 31; ++i) {
    clock_.Advance(absl::Milliseconds(250));
    apply();
  }
  EXPECT_DOUBLE_EQ(monitor.Figures().steps_per_second, 4.0);
  clock_.Advance(absl::Seconds(3.5));
  // The window began 1.5 s before the last step, so six steps and the next one are in 5 s.
  EXPECT_DOUBLE_EQ(monitor.Figures().steps_per_second, 7.0 / 5.0);
  EXPECT_DOUBLE_EQ(monitor.Figures().images_per_second, 70.0 / 5.0);
  clock_.Advance(absl::Seconds(7));
  EXPECT_EQ(monitor.Figures().steps_per_second, 0.0);
  EXPECT_EQ(monitor.Figures().images_per_second, 0.0);
}

TEST_F(TrainingMonitorTest, RatesOfSlowStepsHoldUntilTheNextStepIsOverdue) {
  TrainingMonitor monitor(job_.get(), &clock_);
  coordinator_action::StepApplied step;
  step.parts = {Part(0, 10, 1.0, 0.5)};
  for (int i = 0; i < 3; ++i) {
    clock_.Advance(absl::Seconds(20));
    ++step.step;
    monitor.StepApplied(step);
  }
  clock_.Advance(absl::Seconds(20));
  EXPECT_DOUBLE_EQ(monitor.Figures().steps_per_second, 1.0 / 20);
  EXPECT_DOUBLE_EQ(monitor.Figures().images_per_second, 10.0 / 20);
  clock_.Advance(absl::Seconds(20));
  EXPECT_DOUBLE_EQ(monitor.Figures().steps_per_second, 1.0 / 40);
  clock_.Advance(absl::Seconds(41));
  EXPECT_EQ(monitor.Figures().steps_per_second, 0.0);
}

TEST_F(TrainingMonitorTest, ChoosesTheIntervalForShortAndLongRuns) {
  EXPECT_EQ(ScalarInterval(20), 1);
  EXPECT_EQ(ScalarInterval(20000), 10);
  EXPECT_EQ(ScalarInterval(0), 10);
}

TEST_F(TrainingMonitorTest, AWholeJobWritesEveryStep) {
  TestFolder folder;
  TestServer server(folder, {});
  ASSERT_TRUE(server.Start().ok());
  std::thread training([&server] { TrainWithClones(&server, 3); });
  const absl::Status end = server.WaitAndClose();
  training.join();
  ASSERT_TRUE(end.ok()) << end;
  std::map<int64_t, Scalars> scalars;
  const auto names = server.files().List(server.train_dir());
  ASSERT_TRUE(names.ok());
  for (const std::string& name : *names) {
    if (name.rfind("events.out.tfevents.", 0) == 0) {
      scalars = ReadScalars(server.files(), server.train_dir() + "/" + name);
    }
  }
  ASSERT_EQ(scalars.size(), 20);
  for (int64_t step = 1; step <= 20; ++step) {
    Scalars& at = scalars[step];
    ASSERT_EQ(at.count("clone_loss/2"), 1) << "step " << step;
    EXPECT_NEAR(at["Loss/total_loss"],
                (10 * at["clone_loss/0"] + 10 * at["clone_loss/1"] + 11 * at["clone_loss/2"]) / 31,
                1e-5);
    EXPECT_FLOAT_EQ(at["accuracy"], (10 * 1.0 + 21 * 0.5) / 31);
    EXPECT_FLOAT_EQ(at["learning_rate"], 0.1);
  }
}

}  // namespace
}  // namespace pushpull
