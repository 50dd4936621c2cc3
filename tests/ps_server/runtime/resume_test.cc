// A job that is stopped and resumes from its checkpoint ends with the same weights, slots and
// moving averages as an undisturbed job, bit for bit, with every optimizer. Also checks the
// learning rate that heartbeats and manifests report.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "tests/testkit/job/step_gate.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/optimizer_fields.h"

namespace pushpull {
namespace {

constexpr uint64_t kSteps = 20;

// A different rate in every step.
constexpr char kRate[] =
    "learning_rate { exponential_decay_learning_rate { initial_learning_rate: 0.05 "
    "decay_steps: 1 decay_factor: 0.9 } }";

// Compares two results of TestServer::Checkpointed part by part.
void ExpectSameParts(const TestServer& server, const std::vector<float>& state,
                     const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(state.size(), expected.size()) << what;
  const OptimizerSpec& optimizer = server.job().optimizer;
  std::vector<std::string> parts = {"weights"};
  for (int slot = 0; slot < optimizer.num_slots(); ++slot) {
    parts.emplace_back(optimizer.slot_name(slot));
  }
  if (optimizer.has_ema) parts.emplace_back(kEmaName);
  const size_t n = server.job().layout.total_elements();
  ASSERT_EQ(state.size(), n * parts.size()) << what;
  for (size_t part = 0; part < parts.size(); ++part) {
    size_t differ = 0;
    for (size_t i = part * n; i < (part + 1) * n; ++i) differ += state[i] != expected[i];
    EXPECT_EQ(differ, 0) << what << ": " << parts[part] << ", of " << n << " elements";
  }
}

// The parameter is a field of the oneof in config::Optimizer.
class ResumeTest : public ::testing::TestWithParam<std::string> {
 protected:
  static std::string TrainConfig(bool ema) {
    // With the warm-up each step has another decay.
    const std::string average =
        ema ? "use_moving_average: true moving_average_decay: 0.8 moving_average_warmup: true"
            : "use_moving_average: false";
    return absl::StrCat("optimizer { ", GetParam(), " { ", kRate, " } ", average, " }");
  }
};

TEST_P(ResumeTest, AResumedJobMakesTheSameBits) {
  for (const bool ema : {true, false}) {
    for (const int tasks : {1, 2}) {
      const TestServerOptions options = {.train_config = TrainConfig(ema), .tasks = tasks};
      const std::vector<float> undisturbed = TrainedState(2, options);
      ASSERT_FALSE(undisturbed.empty());
      TestFolder folder;
      {
        TestServer first(folder, options);
        ASSERT_TRUE(first.Start().ok());
        EXPECT_TRUE(absl::IsCancelled(TrainAndDrainInStep(&first, 8)));
      }
      TestServer second(folder, options);
      ASSERT_TRUE(second.Start().ok());
      ASSERT_TRUE(second.Await([](const auto& status) { return status.version() >= 7; }));
      std::vector<absl::Status> ends;
      std::thread training([&] { ends = TrainWithClones(&second, 2); });
      EXPECT_TRUE(second.WaitAndClose().ok());
      training.join();
      for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << end;
      ExpectSameParts(second, second.Checkpointed(kSteps), undisturbed,
                      absl::StrCat(tasks, " tasks, EMA ", ema));
    }
  }
}

std::vector<std::string> AllOptimizers() {
  std::vector<std::string> names;
  for (const auto* const field : OptimizerFields()) names.push_back(field->name());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ResumeTest, ::testing::ValuesIn(AllOptimizers()),
                         [](const auto& info) { return info.param; });

// A heartbeat and a manifest of version v hold the rate with which version v + 1 is made.
TEST(ReportedLearningRateTest, IsTheRateOfTheNextVersion) {
  TestFolder folder;
  TestServer server(folder, {.train_config = absl::StrCat("save_checkpoints_steps: 5 optimizer { ",
                                                          "adam_optimizer { ", kRate, " } }")});
  ASSERT_TRUE(server.Start().ok());
  const LearningRateSchedule& schedule = server.job().optimizer.learning_rate;
  ASSERT_NE(schedule.At(7), schedule.At(8));
  StepGate gate;
  TestClone clone(&server, {.gradient_hook = gate.HookAt(7)});
  ASSERT_TRUE(gate.AwaitReached());
  PsSession::Options options;
  options.worker_id = 1;  // a spare clone, which has no replica
  PsSession session(options, server.factory(), &server.clock(), nullptr);
  ASSERT_TRUE(session.Connect({"task 0"}).ok());
  ASSERT_TRUE(session.Register(server.job().layout, /*num_images=*/0).ok());
  ASSERT_TRUE(server.Await([](const auto& status) { return status.version() == 7; }));
  ASSERT_TRUE(session.Heartbeat({}).ok());
  EXPECT_EQ(static_cast<float>(session.learning_rate()), schedule.At(7));
  gate.Open();
  EXPECT_TRUE(server.WaitForEnd().ok());
  ps::CloneProgress progress;
  progress.set_knows_end(true);
  ASSERT_TRUE(session.Heartbeat(progress).ok());
  EXPECT_EQ(static_cast<float>(session.learning_rate()), schedule.At(kSteps));
  EXPECT_TRUE(server.WaitAndClose().ok());
  EXPECT_TRUE(clone.Join().ok());
  // A checkpoint that is due while another is being written is skipped.
  const auto steps = ListCheckpoints(server.files(), server.train_dir());
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_FALSE(steps->empty());
  EXPECT_EQ(steps->back(), kSteps);
  for (const uint64_t step : *steps) {
    const auto manifest = ReadManifest(server.files(), server.train_dir(), step);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(manifest->schedule_state.at("learning_rate"), absl::StrCat(schedule.At(step)));
    EXPECT_EQ(manifest->optimizer_state.at("step"), absl::StrCat(step));
  }
}

TEST(ResumedStatisticsTest, RefusesACorrectionThatDidNotHoldFromTheStart) {
  TestFolder folder;
  TestServerOptions options;
  options.pipeline_config =
      "train_input_reader { synthetic_input_reader {} } "
      "eval_input_reader { synthetic_input_reader { seed: 2 } }";
  {
    TestServer first(folder, options);
    ASSERT_TRUE(first.Start().ok());
    EXPECT_TRUE(absl::IsCancelled(TrainAndDrainInStep(&first, 8)));
  }
  TestServerOptions corrected = options;
  corrected.pipeline_config +=
      " model { classifier { num_classes: 10 feature_extractor { conv_hyperparams { batch_norm { "
      "bias_corrected_moving_statistics: true } } } } }";
  {
    TestServer second(folder, corrected);
    const absl::Status started = second.Start();
    EXPECT_TRUE(absl::IsFailedPrecondition(started)) << started;
    EXPECT_TRUE(absl::StrContains(started.message(), "bias_corrected_moving_statistics was false"))
        << started;
  }
  TestServer third(folder, options);
  EXPECT_TRUE(third.Start().ok());
}

// Mapped state knows nothing of the config, and no checkpoint says what it was.
TEST(ResumedStatisticsTest, RefusesAnotherDecayForMappedState) {
  const auto with_decay = [](const std::string& decay) {
    return absl::StrCat(
        "model { classifier { num_classes: 10 feature_extractor { conv_hyperparams { batch_norm { "
        "bias_corrected_moving_statistics: true decay: ",
        decay,
        " } } } } } train_input_reader { synthetic_input_reader {} } "
        "eval_input_reader { synthetic_input_reader { seed: 2 } }");
  };
  TestFolder folder;
  TestServerOptions options;
  options.train_config = "num_steps: 1000000 save_checkpoints_secs: 0";
  options.pipeline_config = with_decay("0.5");
  options.mapped = true;
  options.num_replicas = 1;
  {
    TestServer first(folder, options);
    ASSERT_TRUE(first.Start().ok());
    StepGate gate;
    TestClone clone(&first, {.gradient_hook = gate.HookAt(3)});
    EXPECT_TRUE(gate.AwaitReached());
    first.Kill();
    clone.Stop();
    gate.Open();
    clone.Join().IgnoreError();
  }
  TestServerOptions changed = options;
  changed.pipeline_config = with_decay("0.997");
  {
    TestServer second(folder, changed);
    const absl::Status started = second.Start();
    EXPECT_TRUE(absl::IsFailedPrecondition(started)) << started;
    EXPECT_TRUE(absl::StrContains(started.message(), "batch_norm.decay was 0.5 there")) << started;
    EXPECT_TRUE(absl::StrContains(started.message(), "after the 3 updates")) << started;
  }
  TestServer third(folder, options);
  EXPECT_TRUE(third.Start().ok());
  EXPECT_TRUE(third.Await([](const auto& status) { return status.version() == 3; }));
}

}  // namespace
}  // namespace pushpull
