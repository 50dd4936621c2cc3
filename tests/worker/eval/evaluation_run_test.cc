#include "worker/eval/evaluation_run.h"

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/data/data_test_util.h"
#include "tests/testkit/ssd_test_config.h"
#include "tests/testkit/test_folder.h"
#include "tests/worker/eval/eval_testing.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// What an evaluation of some weights has looked at.
struct Seen {
  std::vector<int> labels;
  std::vector<int64_t> indices;
  std::vector<int64_t> batches;  // their sizes
  std::vector<std::string> progress;
};

class EvaluationRunTest : public ::testing::Test {
 protected:
  Seen Evaluate(const config::TrainEvalPipelineConfig& config) {
    Seen seen;
    auto run = EvaluationRun::Create(config, folder_.path(), {}, stop_);
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return seen;
    const std::vector<float> weights = TinyWeights((*run)->layout(), 1);
    const auto progress = [&seen](int64_t done, int64_t total) {
      seen.progress.push_back(absl::StrCat(done, " of ", total));
    };
    const absl::Status status = (*run)->ForEachBatch(
        weights, 10, stop_, progress, [&](const InputBatch& input, const StepResult&) {
          for (int64_t i = 0; i < input.n; ++i) {
            seen.labels.push_back(input.labels[i]);
            seen.indices.push_back(input.samples[i].index);
          }
          seen.batches.push_back(input.n);
          return absl::OkStatus();
        });
    EXPECT_EQ(status, absl::OkStatus());
    return seen;
  }

  // Returns a config that reads four images of each of three classes, which are in that order.
  config::TrainEvalPipelineConfig FolderConfig() {
    const std::string image = absl::StrCat("P5 32 32 255\n", std::string(32 * 32, 'x'));
    for (const char* name : {"ant", "bee", "cow"}) {
      for (int i = 0; i < 4; ++i) {
        folder_.Write(absl::StrCat("photos/", name, "/", i, ".pgm"), image);
      }
    }
    config::TrainEvalPipelineConfig config = TinyConfig();
    config.mutable_model()->mutable_classifier()->set_num_classes(3);
    config.mutable_eval_config()->clear_num_examples();
    config.mutable_eval_input_reader(0)->mutable_image_folder_input_reader()->set_path("photos");
    return config;
  }

  const TestFolder folder_;
  std::atomic<bool> stop_ = false;
  const WarningSink sink_;
};

TEST_F(EvaluationRunTest, EvaluatesAllExamplesUnlessTheConfigSaysOtherwise) {
  EXPECT_THAT(Evaluate(FolderConfig()).labels, ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2));
  EXPECT_EQ(sink_.Count("num_examples"), 0);
  // More than the schema's default of 5000, which is that of TensorFlow.
  EXPECT_EQ(NumEvaluated(config::EvalConfig(), 5001), 5001);
}

TEST_F(EvaluationRunTest, FewerExamplesAreSpreadOverTheClassesAndGiveAWarning) {
  config::TrainEvalPipelineConfig config = FolderConfig();
  config.mutable_eval_config()->set_num_examples(6);
  EXPECT_THAT(Evaluate(config).labels, ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_EQ(sink_.Count("eval_config.num_examples is 6, eval_input_reader has 12 examples"), 1);
}

TEST_F(EvaluationRunTest, ReportsTheProgressAfterEachBatch) {
  config::TrainEvalPipelineConfig config = FolderConfig();
  config.mutable_eval_config()->set_batch_size(5);
  EXPECT_THAT(Evaluate(config).progress, ElementsAre("5 of 12", "10 of 12", "12 of 12"));
}

TEST_F(EvaluationRunTest, ABatchIsNotLargerThanTheEvaluation) {
  config::TrainEvalPipelineConfig config = FolderConfig();
  config.mutable_eval_config()->set_batch_size(1 << 30);
  EXPECT_THAT(Evaluate(config).batches, ElementsAre(12));
}

TEST_F(EvaluationRunTest, RefusesOtherClassFoldersThanThoseOfTraining) {
  config::TrainEvalPipelineConfig config = FolderConfig();
  for (const char* name : {"ant", "bee", "dog"}) {
    folder_.MakeFolder(absl::StrCat("train/", name));
  }
  config.mutable_train_input_reader()->mutable_image_folder_input_reader()->set_path("train");
  const absl::Status status = EvaluationRun::Create(config, folder_.path(), {}, stop_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("class 2 is \"dog\""));
}

TEST_F(EvaluationRunTest, NamesDamagedImagesOnceAndUsesThem) {
  const config::TrainEvalPipelineConfig config = FolderConfig();
  folder_.Write("photos/bee/0.pgm", EndJpegEarly(EncodeJpeg(MakeImage(32, 32, 3))));
  const auto run = EvaluationRun::Create(config, folder_.path(), {}, stop_);
  ASSERT_TRUE(run.ok()) << run.status();
  const std::vector<float> weights = TinyWeights((*run)->layout(), 1);
  for (int i = 0; i < 2; ++i) {
    int64_t examples = 0;
    const auto count = [&](const InputBatch& input, const StepResult&) {
      examples += input.n;
      return absl::OkStatus();
    };
    EXPECT_EQ((*run)->ForEachBatch(weights, 10, stop_, nullptr, count), absl::OkStatus());
    EXPECT_EQ(examples, 12);
    EXPECT_EQ(sink_.Count("1 of 12 images are damaged"), 1);
    EXPECT_EQ(sink_.Count("photos/bee/0.pgm: the JPEG data are damaged"), 1);
  }
}

TEST_F(EvaluationRunTest, NamesAllUnreadableImagesAtTheStart) {
  config::TrainEvalPipelineConfig config = FolderConfig();
  const std::string truncated = EncodeJpeg(MakeImage(32, 32, 3)).substr(0, 40);
  folder_.Write("photos/ant/3.pgm", truncated);  // number 3
  folder_.Write("photos/bee/3.pgm", truncated);  // number 7
  const absl::Status status = EvaluationRun::Create(config, folder_.path(), {}, stop_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("2 of 12 images cannot be read"),
                                                   HasSubstr("ant/3.pgm"), HasSubstr("bee/3.pgm")));
  // Numbers 0, 2, 4, 6, 8 and 10 can be read.
  config.mutable_eval_config()->set_num_examples(6);
  EXPECT_EQ(Evaluate(config).labels.size(), 6u);
  stop_ = true;
  EXPECT_EQ(EvaluationRun::Create(config, folder_.path(), {}, stop_).status().code(),
            absl::StatusCode::kCancelled);
}

// The numbers of a detector's examples are the image_id of its results.
TEST_F(EvaluationRunTest, ADetectorTakesTheFirstExamples) {
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig(
      "ssd_mobilenet_v2",
      "num_classes: 3 image_resizer { fixed_shape_resizer { height: 64 width: 64 } } "
      "feature_extractor { depth_multiplier: 0.1 }");
  config.mutable_eval_config()->set_num_examples(3);
  config::SyntheticInputReader& scenes =
      *config.add_eval_input_reader()->mutable_synthetic_input_reader();
  scenes.set_num_examples(12);
  scenes.set_height(96);
  scenes.set_width(80);
  scenes.set_num_classes(3);
  scenes.set_max_objects(4);
  EXPECT_THAT(Evaluate(config).indices, ElementsAre(0, 1, 2));
  EXPECT_EQ(sink_.Count("eval_config.num_examples is 3, eval_input_reader has 12 examples"), 1);
}

}  // namespace
}  // namespace pushpull
