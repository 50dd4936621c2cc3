#include "worker/eval/config_watcher.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/memory_file_system.h"
#include "tests/worker/eval/eval_testing.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

TEST(ConfigWatcher, NamesWhatAnEvaluationFollows) {
  MemoryFileSystem files;
  ASSERT_EQ(files.MakeDirectory("/d"), absl::OkStatus());
  const config::TrainEvalPipelineConfig loaded = TinyConfig();
  ConfigWatcher watcher(&files, "/d/pipeline.config", loaded);
  const auto change_to = [&](const config::TrainEvalPipelineConfig& config) {
    files.Corrupt("/d/pipeline.config", config.DebugString());
    return watcher.DescribeChange();
  };
  EXPECT_EQ(watcher.DescribeChange(), "") << "there is no file";
  EXPECT_EQ(change_to(loaded), "");
  EXPECT_EQ(watcher.DescribeChange(), "") << "the text is the same";
  config::TrainEvalPipelineConfig other = loaded;
  other.mutable_train_config()->set_num_steps(200);
  EXPECT_EQ(change_to(other), "") << "no matter for the evaluation";
  files.Corrupt("/d/pipeline.config", "model { of_a_newer_version: 1 }");
  EXPECT_EQ(watcher.DescribeChange(), "");
  other.mutable_eval_input_reader(0)->mutable_synthetic_input_reader()->set_seed(3);
  EXPECT_THAT(change_to(other), HasSubstr("eval_input_reader[0].synthetic_input_reader.seed"));
  other = loaded;
  other.mutable_eval_config()->clear_num_examples();
  EXPECT_THAT(change_to(other), HasSubstr("deleted: eval_config.num_examples: 24"));
  other = loaded;
  other.mutable_model()->mutable_classifier()->mutable_image_resizer()->clear_fixed_shape_resizer();
  EXPECT_THAT(change_to(other), HasSubstr("model.classifier.image_resizer"));
}

TEST(EvaluationDigest, FollowsWhatCanChangeAMetric) {
  const std::string digest = EvaluationDigest(TinyConfig());
  EXPECT_EQ(digest.size(), 64);
  config::TrainEvalPipelineConfig other = TinyConfig();
  other.mutable_train_config()->set_num_steps(200);
  other.mutable_eval_config()->set_num_visualizations(3);
  other.mutable_eval_config()->set_min_score_threshold(0.25f);
  other.mutable_eval_config()->set_max_num_boxes_to_visualize(7);
  other.mutable_eval_config()->set_eval_interval_secs(1);
  other.mutable_eval_config()->set_max_evals(100);
  other.mutable_eval_config()->set_export_path("detections.json");
  EXPECT_EQ(EvaluationDigest(other), digest);
  other.mutable_eval_config()->clear_num_examples();
  EXPECT_NE(EvaluationDigest(other), digest);
  other = TinyConfig();
  other.mutable_eval_input_reader(0)->mutable_synthetic_input_reader()->set_seed(3);
  EXPECT_NE(EvaluationDigest(other), digest);
  other = TinyConfig();
  other.mutable_model()->mutable_classifier()->mutable_image_resizer()->clear_fixed_shape_resizer();
  EXPECT_NE(EvaluationDigest(other), digest);
}

}  // namespace
}  // namespace pushpull
