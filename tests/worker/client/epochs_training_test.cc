// Clones and server in one process: training that train_input_reader.num_epochs ends.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "tests/testkit/job/step_gate.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

// Three epochs of 100 images are 9.7 batches of 31. The default config allows 20 steps.
constexpr uint32_t kEpochs = 3;
constexpr uint64_t kEpochSteps = 10;

class EpochsTrainingTest : public ::testing::TestWithParam<bool> {
 protected:
  TestServerOptions Options(uint32_t num_epochs = kEpochs) const {
    TestServerOptions options;
    options.num_epochs = num_epochs;
    options.sync = GetParam();
    return options;
  }
  // Trains with two clones until the job ends.
  static void TrainToTheEnd(TestServer* server) {
    ASSERT_TRUE(server->Start().ok());
    std::vector<absl::Status> clones;
    std::thread training([&] { clones = TrainWithClones(server, 2); });
    const absl::Status end = server->WaitAndClose();
    training.join();
    EXPECT_TRUE(end.ok()) << end;
    for (const absl::Status& clone : clones) EXPECT_TRUE(clone.ok()) << clone;
  }
  // Drains the server while a clone is held in step `step`.
  static void TrainAndDrain(TestServer* server, uint64_t step) {
    ASSERT_TRUE(server->Start().ok());
    if (GetParam()) {
      EXPECT_TRUE(absl::IsCancelled(TrainAndDrainInStep(server, step)));
      return;
    }
    // Another clone would go on, because an asynchronous step does not wait for all of them.
    StepGate gate;
    TestClone clone(server, {.num_replicas = 2, .gradient_hook = gate.HookAt(step - 1)});
    EXPECT_TRUE(gate.AwaitReached());
    server->core().Drain();
    gate.Open();
    EXPECT_TRUE(absl::IsCancelled(server->WaitAndClose()));
    clone.Stop();
    clone.Join().IgnoreError();
  }
  CheckpointManifest NewestManifest() {
    PosixFileSystem files;
    const std::string train_dir = folder_.path() + "/train";
    const auto steps = ListCheckpoints(files, train_dir);
    if (!steps.ok() || steps->empty()) {
      ADD_FAILURE() << "no checkpoint";
      return {};
    }
    const auto manifest = ReadManifest(files, train_dir, steps->back());
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    return manifest.value_or(CheckpointManifest());
  }
  void ExpectEnd(uint64_t step, uint64_t last_step) {
    const CheckpointManifest manifest = NewestManifest();
    EXPECT_EQ(manifest.step, step);
    EXPECT_TRUE(manifest.training_done);
    EXPECT_EQ(manifest.last_step, last_step);
    EXPECT_EQ(manifest.num_images, ToyGradientSource::kNumImages);
  }

  TestFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Modes, EpochsTrainingTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Sync" : "Async"; });

TEST_P(EpochsTrainingTest, EndsWithTheBatchThatEndsTheLastEpoch) {
  for (const int tasks : {1, 2}) {
    TestFolder folder;
    TestServerOptions options = Options();
    options.tasks = tasks;
    TestServer server(folder, options);
    ASSERT_TRUE(server.Start().ok());
    std::vector<std::unique_ptr<TestClone>> clones;
    for (uint32_t k = 0; k < 2; ++k) {
      clones.push_back(std::make_unique<TestClone>(
          &server, TestCloneOptions{.worker_id = k, .num_replicas = 2}));
    }
    const absl::Status end = server.WaitAndClose();
    EXPECT_TRUE(end.ok()) << end;
    for (const auto& clone : clones) {
      const absl::Status ended = clone->Join();
      EXPECT_TRUE(ended.ok()) << ended;
      for (const CloneReport& report : clone->reports()) EXPECT_EQ(report.num_steps, kEpochSteps);
    }
    EXPECT_FALSE(server.Checkpointed(kEpochSteps).empty());
    EXPECT_TRUE(server.Checkpointed(kEpochSteps + 1).empty());
  }
}

TEST_P(EpochsTrainingTest, EndsWithNumStepsIfThatComesFirst) {
  TestServerOptions options = Options();
  options.train_config = "num_steps: 7";
  TestServer server(folder_, options);
  TrainToTheEnd(&server);
  ExpectEnd(7, 7);
}

TEST_P(EpochsTrainingTest, RefusesClonesWithOtherData) {
  TestServer server(folder_, Options());
  ASSERT_TRUE(server.Start().ok());
  std::thread closing([&] {
    const absl::Status end = server.WaitAndClose();
    EXPECT_TRUE(end.ok()) << end;
  });
  TestClone empty(&server, {.worker_id = 0, .num_replicas = 2, .num_images = 0});
  const absl::Status refused = empty.Join();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_TRUE(absl::StrContains(refused.message(), "0 training images")) << refused;

  // The first clone cannot end the job alone while it is held in its first step.
  absl::Notification go_on;
  TestClone first(&server,
                  {.worker_id = 0,
                   .num_replicas = 2,
                   .gradient_hook = [&](uint64_t, uint32_t, GradientResult*, absl::Span<float>) {
                     go_on.WaitForNotification();
                   }});
  EXPECT_TRUE(server.Await([](const auto& status) { return status.num_steps() == kEpochSteps; }));
  TestClone other(&server, {.worker_id = 1, .num_replicas = 2, .num_images = 99});
  const absl::Status disagrees = other.Join();
  EXPECT_TRUE(absl::IsFailedPrecondition(disagrees)) << disagrees;
  EXPECT_TRUE(absl::StrContains(disagrees.message(), "99 training images")) << disagrees;
  EXPECT_TRUE(absl::StrContains(disagrees.message(), "over 100")) << disagrees;
  TestClone second(&server, {.worker_id = 1, .num_replicas = 2});
  go_on.Notify();
  EXPECT_TRUE(first.Join().ok());
  EXPECT_TRUE(second.Join().ok());
  closing.join();
  ExpectEnd(kEpochSteps, kEpochSteps);
}

TEST_P(EpochsTrainingTest, ARestartedServerKnowsTheLastStepWithoutAClone) {
  TestServer server(folder_, Options());
  TrainAndDrain(&server, 5);
  const CheckpointManifest drained = NewestManifest();
  EXPECT_FALSE(drained.training_done);
  EXPECT_EQ(drained.last_step, kEpochSteps);
  EXPECT_EQ(drained.num_images, ToyGradientSource::kNumImages);

  ASSERT_TRUE(server.Start().ok());
  EXPECT_TRUE(server.Await([](const auto& status) { return status.num_steps() == kEpochSteps; }));
  server.Kill();
  TrainToTheEnd(&server);
  ExpectEnd(kEpochSteps, kEpochSteps);

  ASSERT_TRUE(server.Start().ok());
  const absl::Status end = server.WaitForEnd();
  EXPECT_TRUE(end.ok()) << "a finished run ends at once: " << end;
  server.Kill();
}

TEST_P(EpochsTrainingTest, MoreEpochsContinueAFinishedRun) {
  {
    TestServer server(folder_, Options());
    TrainToTheEnd(&server);
  }
  TestServer server(folder_, Options(kEpochs + 1));
  TrainToTheEnd(&server);
  ExpectEnd(13, 13);
}

TEST_P(EpochsTrainingTest, FewerEpochsEndARunThatHasGoneFurther) {
  for (const bool mapped : {false, true}) {
    TestFolder folder;
    TestServerOptions options = Options();
    options.mapped = mapped;
    uint64_t step = 0;
    {
      TestServer server(folder, options);
      TrainAndDrain(&server, 8);
      step = ListCheckpoints(server.files(), server.train_dir())->back();
      EXPECT_FALSE(ReadManifest(server.files(), server.train_dir(), step)->training_done);
    }
    options.num_epochs = 1;
    TestServer server(folder, options);
    ASSERT_TRUE(server.Start().ok());
    const absl::Status end = server.WaitForEnd();
    EXPECT_TRUE(end.ok()) << end;
    const auto last = ReadManifest(server.files(), server.train_dir(), step);
    ASSERT_TRUE(last.ok()) << last.status();
    EXPECT_TRUE(last->training_done) << "the evaluator waits for this";
    EXPECT_EQ(last->last_step, 4);
    EXPECT_FALSE(server.Checkpointed(step).empty());
    EXPECT_EQ(ListCheckpoints(server.files(), server.train_dir())->back(), step);
    server.Kill();
  }
}

// The server is killed after the last step and before its first checkpoint, so that only a clone
// can say that the version in memory is the last one.
TEST_P(EpochsTrainingTest, ACloneEndsARunThatWasKilledAfterItsLastStep) {
  TestServerOptions options = Options();
  options.mapped = true;
  {
    // A run without the number of images goes on beyond the step that will be the last.
    TestServerOptions longer = options;
    longer.num_epochs = 0;
    longer.train_config = "num_steps: 1000000";
    TestServer server(folder_, longer);
    ASSERT_TRUE(server.Start().ok());
    TestClone clone(&server, {});
    ASSERT_TRUE(server.Await([](const auto& status) { return status.version() >= kEpochSteps; }));
    clone.Stop();
    clone.Join().IgnoreError();
    server.Kill();
  }
  TestServer server(folder_, options);
  ASSERT_TRUE(server.Start().ok());
  TestClone clone(&server, {});
  const absl::Status end = server.WaitAndClose();
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_TRUE(clone.Join().ok());
  const CheckpointManifest manifest = NewestManifest();
  EXPECT_TRUE(manifest.training_done);
  EXPECT_GE(manifest.step, kEpochSteps);
}

}  // namespace
}  // namespace pushpull
