// Tests what the evaluator does when something changes around it: the runs in its folder, the
// config, or whether its files can be read and written.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/checkpoint/retention.h"
#include "tests/worker/eval/evaluator_testing.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

// Somebody has copied the last checkpoint of a finished run into the folder, for a comparison.
TEST_F(EvaluatorTest, WaitsForTheFoldersOwnRun) {
  const WarningSink sink;
  const std::string own = TinyCheckpoint().run_id;
  const std::string other(32, 'a');
  Publish({.epoch = 3, .step = 300, .training_done = true, .run_id = other});
  files_.Corrupt("/d/run_id", own + "\n");
  Publish({.step = 100});
  ASSERT_EQ(MakeDirectories(files_, "/d/eval"), absl::OkStatus());
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval", {300, "accuracy", 2.0, other, 3}),
            absl::OkStatus());
  std::vector<int64_t> first;
  EXPECT_EQ(Run([&](int call) {
              if (call != 2) return;
              first = EvaluatedSteps();
              Publish({.step = 200, .training_done = true});
            }),
            absl::OkStatus());
  EXPECT_THAT(first, ElementsAre(100));
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100, 200));
  const auto best = ReadBestCheckpoint(files_, "/d/eval");
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->run_id, own);
  EXPECT_EQ(
      sink.Count("of another run than /d, whose run is " + own + ": the checkpoints of steps 300"),
      1);
}

// A server is started again with another resizer, which changes no variable.
TEST_F(EvaluatorTest, EndsWhenTheConfigAsksForAnotherEvaluation) {
  const WarningSink sink;
  ConfigWatcher watcher(&files_, "/d/pipeline.config", TinyConfig());
  config_ = &watcher;
  files_.Corrupt("/d/pipeline.config", TinyConfig().DebugString());
  config::TrainEvalPipelineConfig other = TinyConfig();
  other.mutable_model()
      ->mutable_classifier()
      ->mutable_image_resizer()
      ->mutable_fixed_shape_resizer()
      ->set_height(48);
  Publish(100, 1);
  options_.config_digest = EvaluationDigest(TinyConfig());
  FakeEvaluation fake(evaluation_->layout(), [](int) { return 0.75; });
  const auto change = [&](int call) {
    if (call != 1) return;
    files_.Corrupt("/d/pipeline.config", other.DebugString());
    Publish(200, 2, /*done=*/true);
  };
  EXPECT_EQ(Run(change, &fake), absl::OkStatus());
  EXPECT_TRUE(config_has_changed_);
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100));
  EXPECT_EQ(sink.Count("fixed_shape_resizer.height: 32 -> 48"), 1);

  // The next one evaluates all checkpoints again, and compares no values of the two.
  ConfigWatcher next_watcher(&files_, "/d/pipeline.config", other);
  config_ = &next_watcher;
  options_.config_digest = EvaluationDigest(other);
  FakeEvaluation next(evaluation_->layout(), [](int run) { return run == 0 ? 0.25 : 0.5; });
  EXPECT_EQ(Run([](int) {}, &next), absl::OkStatus());
  EXPECT_FALSE(config_has_changed_);
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100, 100, 200));
  const auto best = ReadBestCheckpoint(files_, "/d/eval");
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->step, 200);
  EXPECT_EQ((*best)->value, 0.5);
}

// The best checkpoint is older than those that retention keeps without its record.
TEST_F(EvaluatorTest, TheBestOfAnotherConfigIsEvaluatedFirstAndStaysRecorded) {
  options_.config_digest = "before";
  Publish(100, 1);
  FakeEvaluation before(evaluation_->layout(), [](int) { return 0.9; });
  EXPECT_EQ(Run([&](int) { stop_ = true; }, &before).code(), absl::StatusCode::kCancelled);
  stop_ = false;
  options_.config_digest = "now";
  for (const uint64_t step : {200, 300, 400, 500, 600}) Publish(step, step, step == 600);
  std::vector<uint64_t> recorded;  // at the beginning of each evaluation
  FakeEvaluation now(evaluation_->layout(), [&](int run) {
    recorded.push_back((**ReadBestCheckpoint(files_, "/d/eval")).step);
    return run == 0 ? 0.7 : 0.5;
  });
  EXPECT_EQ(Run([](int) {}, &now), absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100, 100, 600));
  EXPECT_THAT(recorded, ElementsAre(100, 100));
  const BestCheckpoint best = **ReadBestCheckpoint(files_, "/d/eval");
  EXPECT_EQ(best.step, 100);
  EXPECT_EQ(best.value, 0.7);
  EXPECT_EQ(best.config_digest, "now");
}

TEST_F(EvaluatorTest, TheBestOfAnotherConfigIsReplacedIfItIsDamaged) {
  options_.config_digest = "now";
  Publish(100, 1);
  Publish(200, 2, /*done=*/true);
  files_.Corrupt("/d/ckpt-00000100/shard-00000-of-00001.safetensors", "damaged");
  ASSERT_EQ(MakeDirectories(files_, "/d/eval"), absl::OkStatus());
  ASSERT_EQ(WriteBestCheckpoint(files_, "/d/eval",
                                {100, "accuracy", 0.9, TinyCheckpoint().run_id, 1, "before"}),
            absl::OkStatus());
  FakeEvaluation fake(evaluation_->layout(), [](int) { return 0.5; });
  EXPECT_EQ(Run([](int) {}, &fake), absl::OkStatus());
  EXPECT_EQ((**ReadBestCheckpoint(files_, "/d/eval")).step, 200);
}

// A file system over the network has lost its server for a moment.
TEST_F(EvaluatorTest, AListingThatFailsForAWhileDoesNotEndIt) {
  const WarningSink sink;
  used_files_ = &failing_;
  EXPECT_EQ(Run([&](int call) {
              if (call == 1) {
                failing_.Fail(FailingReads::What::kList, "/d",
                              absl::InternalError("list: Stale file handle"), 2);
              }
              if (call == 5) Publish(100, 1, /*done=*/true);
            }),
            absl::OkStatus());
  EXPECT_EQ(failing_.failed(), 2);
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100));
  EXPECT_EQ(sink.Count("list: Stale file handle"), 1) << "one warning for failures in a row";
}

TEST_F(EvaluatorTest, WeightsThatCannotBeReadAreReadAgain) {
  const WarningSink sink;
  options_.eval_interval = absl::Seconds(20);
  for (const bool run_once : {false, true}) {
    options_.run_once = run_once;
    options_.max_evals = 1;
    Publish(run_once ? 200 : 100, 1);
    FailWeightsOnce();
    EXPECT_EQ(Run(), absl::OkStatus());
    EXPECT_TRUE(weights_have_failed_);
    EXPECT_EQ(sleeps_, 1) << "the failure costs no pause between evaluations";
  }
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100, 200));
  EXPECT_EQ(sink.Count("read: Input/output error"), 2);
}

// The first checkpoint is damaged, and the weights of the second cannot be read for a while.
TEST_F(EvaluatorTest, RunOnceWaitsForWeightsAlthoughAnotherCheckpointIsDamaged) {
  options_.run_once = true;
  Publish(100, 1);
  Publish(200, 2);
  files_.Corrupt("/d/ckpt-00000100/MANIFEST.json", "damaged");
  FailWeightsOnce();
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(sleeps_, 1);
  EXPECT_EQ(nlohmann::json::parse(results_.str())["step"], 200);
}

TEST_F(EvaluatorTest, RunOnceTakesAnOlderCheckpointIfWeightsCannotBeReadInTime) {
  const WarningSink sink;
  options_.run_once = true;
  options_.wait = absl::ZeroDuration();
  Publish(100, 1);
  Publish(200, 2);
  FailWeightsOnce();
  EXPECT_EQ(Run(), absl::OkStatus());
  EXPECT_EQ(nlohmann::json::parse(results_.str())["step"], 100);
  EXPECT_EQ(sink.Count("ckpt-00000100 is evaluated, because no newer checkpoint can be used"), 1);
}

TEST_F(EvaluatorTest, RunOnceNamesTheCheckpointsOfAnotherRun) {
  options_.run_once = true;
  options_.wait = absl::ZeroDuration();
  Publish({.step = 300});
  files_.Corrupt("/d/run_id", std::string(32, 'a') + "\n");
  const absl::Status status = Run();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "those of steps 300 are of another run"))
      << status;
}

TEST_F(EvaluatorTest, AnExportThatFailsDoesNotEndIt) {
  Publish(100, 1, /*done=*/true);
  FakeEvaluation fake(evaluation_->layout(), [](int) { return 0.5; });
  fake.export_status = absl::ResourceExhaustedError("eval_config.export_path: no space left");
  EXPECT_EQ(Run([](int) {}, &fake), absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100));
  EXPECT_EQ((**ReadBestCheckpoint(files_, "/d/eval")).value, 0.5);
  options_.run_once = true;
  EXPECT_EQ(Run([](int) {}, &fake), fake.export_status);
  EXPECT_EQ(nlohmann::json::parse(results_.str())["accuracy"], 0.5);
}

TEST_F(EvaluatorTest, AFullDiskAtTheStartOnlyDelaysTheFiles) {
  Publish(100, 1, /*done=*/true);
  files_.SetFault(FileFault{FileFault::Kind::kDiskFull, 0, /*lasting=*/true});
  EXPECT_EQ(Run([&](int call) {
              if (call == 2) files_.SetFault(std::nullopt);
            }),
            absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100));
  const auto best = ReadBestCheckpoint(files_, "/d/eval");
  EXPECT_TRUE(best.ok() && best->has_value());
}

TEST_F(EvaluatorTest, AFullDiskWhileAnotherRunBeginsOnlyDelaysTheFiles) {
  Publish(100, 1);
  EXPECT_EQ(Run([&](int call) {
              if (call == 1) {
                ASSERT_EQ(RemoveRecursively(files_, "/d/ckpt-00000100"), absl::OkStatus());
                Publish({.step = 200, .training_done = true, .run_id = std::string(32, 'e')});
                files_.SetFault(FileFault{FileFault::Kind::kDiskFull, 0, /*lasting=*/true});
              }
              if (call == 3) files_.SetFault(std::nullopt);
            }),
            absl::OkStatus());
  EXPECT_THAT(EvaluatedSteps(), ElementsAre(100, 200));
  EXPECT_EQ((**ReadBestCheckpoint(files_, "/d/eval")).step, 200);
}

}  // namespace
}  // namespace pushpull
