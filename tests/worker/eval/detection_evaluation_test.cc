#include "worker/eval/detection_evaluation.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "common/base/passing_error.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/model/initializers.h"
#include "tests/testkit/damaged_records.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/ssd_test_config.h"
#include "worker/data/image_codec.h"
#include "worker/data/scene_source.h"
#include "worker/eval/detector.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// A small detector of three shapes on images of 64 x 64 pixels, with random weights.
config::TrainEvalPipelineConfig MakeConfig(const std::string& eval = "") {
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig(
      "ssd_mobilenet_v2",
      "num_classes: 3 image_resizer { fixed_shape_resizer { height: 64 width: 64 } } "
      "feature_extractor { depth_multiplier: 0.1 }");
  config::TrainEvalPipelineConfig rest;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "eval_config { num_examples: 10 batch_size: 4 num_visualizations: 3 " + eval +
          " } eval_input_reader { synthetic_input_reader { num_examples: 12 height: 96 width: 80 "
          "num_classes: 3 max_objects: 4 } }",
      &rest));
  config.MergeFrom(rest);
  return config;
}

std::vector<float> RandomWeights(const VariableLayout& layout) {
  std::vector<float> weights(layout.total_elements());
  InitializeVariables(layout, 5, absl::MakeSpan(weights));
  return weights;
}

class DetectionEvaluationTest : public testing::Test {
 protected:
  absl::StatusOr<EvaluationReport> Evaluate(const config::TrainEvalPipelineConfig& config) {
    auto evaluation = MakeEvaluation(config, "", {}, &files_, stop_);
    if (!evaluation.ok()) return evaluation.status();
    return (*evaluation)->Run(RandomWeights((*evaluation)->layout()), 10, stop_, nullptr);
  }

  MemoryFileSystem files_;
  std::atomic<bool> stop_ = false;
};

TEST_F(DetectionEvaluationTest, OpeningTheDataEndsWhenItIsStopped) {
  const DamagedRecords records;
  auto config = MakeConfig();
  *config.mutable_eval_input_reader(0) = records.Reader();
  const auto make = [&] { return MakeEvaluation(config, "", {}, &files_, stop_).status().code(); };
  EXPECT_EQ(make(), absl::StatusCode::kDataLoss);
  stop_ = true;
  EXPECT_EQ(make(), absl::StatusCode::kCancelled);
}

TEST_F(DetectionEvaluationTest, EvaluatesTheSampledExamplesOnce) {
  auto config = MakeConfig();
  config.mutable_eval_input_reader(0)->set_sample_1_of_n_examples(5);
  const auto report = Evaluate(config);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->examples, 3);  // 0, 5 and 10 of 12, though num_examples is 10
  EXPECT_EQ(report->images.size(), 3u);
}

TEST_F(DetectionEvaluationTest, ReportsOpenImagesMetricsUnderBothNames) {
  for (const char* name : {"oid_V2_detection_metrics", "open_images_V2_detection_metrics"}) {
    const auto report = Evaluate(MakeConfig(absl::StrCat("metrics_set: '", name, "'")));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->scalars[0].tag, "OpenImagesV2_Precision/mAP@0.5IOU");
    EXPECT_EQ(report->scalars[1].tag, "OpenImagesV2_PerformanceByCategory/AP@0.5IOU/disc");
  }
}

TEST_F(DetectionEvaluationTest, ReportsAMetricOnceThatIsNamedTwice) {
  const auto report = Evaluate(MakeConfig(
      "metrics_set: 'oid_V2_detection_metrics' metrics_set: 'open_images_V2_detection_metrics' "
      "metrics_set: 'oid_V2_detection_metrics'"));
  ASSERT_TRUE(report.ok()) << report.status();
  std::set<std::string> tags;
  for (const ScalarSummary& scalar : report->scalars) {
    EXPECT_TRUE(tags.insert(scalar.tag).second) << scalar.tag;
  }
  EXPECT_EQ(tags.count("OpenImagesV2_Precision/mAP@0.5IOU"), 1u);
}

TEST_F(DetectionEvaluationTest, ReportsTensorflowsTagsAndImages) {
  const auto report = Evaluate(MakeConfig(
      "metrics_set: 'coco_detection_metrics' metrics_set: 'pascal_voc_detection_metrics'"));
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->examples, 10);
  std::map<std::string, double> values;
  for (const ScalarSummary& scalar : report->scalars) values[scalar.tag] = scalar.value;
  EXPECT_EQ(report->scalars[0].tag, "DetectionBoxes_Precision/mAP");
  for (const char* tag :
       {"DetectionBoxes_Precision/mAP@.50IOU", "DetectionBoxes_Recall/AR@100",
        "PascalBoxes_Precision/mAP@0.5IOU", "PascalBoxes_PerformanceByCategory/AP@0.5IOU/disc",
        "Losses/Loss/localization_loss", "Losses/Loss/classification_loss"}) {
    EXPECT_TRUE(values.count(tag)) << tag;
  }
  EXPECT_GT(values["Losses/Loss/classification_loss"], 0.0);
  ASSERT_EQ(report->images.size(), 3u);
  EXPECT_EQ(report->images[2].tag, "image-2");
  Image image;
  ASSERT_TRUE(DecodeImage(report->images[0].png, "x", &image).ok());
  EXPECT_EQ(image.height, 96);
  EXPECT_EQ(image.width, 80);
}

TEST_F(DetectionEvaluationTest, OnlyTheLossesDependOnTheBatchSize) {
  std::vector<EvaluationReport> reports;
  for (const int batch : {1, 3, 10}) {
    config::TrainEvalPipelineConfig config = MakeConfig();
    config.mutable_eval_config()->set_batch_size(batch);
    const auto report = Evaluate(config);
    ASSERT_TRUE(report.ok()) << report.status();
    reports.push_back(*report);
  }
  for (const EvaluationReport& report : reports) {
    ASSERT_EQ(report.scalars.size(), reports[0].scalars.size());
    for (size_t i = 0; i < report.scalars.size(); ++i) {
      if (report.scalars[i].tag.rfind("Losses/", 0) == 0) continue;
      if (std::isnan(reports[0].scalars[i].value)) continue;
      EXPECT_NEAR(report.scalars[i].value, reports[0].scalars[i].value, 1e-5)
          << report.scalars[i].tag;
    }
    EXPECT_EQ(report.images[0].png, reports[0].images[0].png);
  }
}

TEST_F(DetectionEvaluationTest, BiasCorrectionReachesTheBackboneOnlyWithTheOverride) {
  config::TrainEvalPipelineConfig config = MakeConfig();
  config::SsdFeatureExtractor& extractor =
      *config.mutable_model()->mutable_ssd()->mutable_feature_extractor();
  extractor.mutable_conv_hyperparams()->mutable_batch_norm()->set_bias_corrected_moving_statistics(
      true);
  const auto share = [&] {
    const auto evaluation = MakeEvaluation(config, "", {}, &files_, stop_);
    EXPECT_TRUE(evaluation.ok()) << evaluation.status();
    return (*evaluation)->UnsettledShare(10);
  };
  EXPECT_NEAR(share(), std::pow(0.9997, 10), 1e-5);
  extractor.set_override_base_feature_extractor_hyperparams(true);
  EXPECT_EQ(share(), 0.0);
}

TEST_F(DetectionEvaluationTest, ReportsCocoMetricsOfEachClassIfTheConfigSaysSo) {
  for (const bool per_category : {false, true}) {
    config::TrainEvalPipelineConfig config = MakeConfig("metrics_set: 'coco_detection_metrics'");
    config.mutable_eval_config()->set_include_metrics_per_category(per_category);
    const auto report = Evaluate(config);
    ASSERT_TRUE(report.ok()) << report.status();
    std::set<std::string> tags;
    for (const ScalarSummary& scalar : report->scalars) tags.insert(scalar.tag);
    EXPECT_EQ(tags.count("DetectionBoxes_PerformanceByCategory/mAP/disc"), per_category ? 1 : 0);
  }
}

TEST_F(DetectionEvaluationTest, DrawsAsManyDetectionsAsTheConfigSays) {
  const auto drawn = [this](const std::string& eval) {
    const auto report = Evaluate(MakeConfig(eval));
    EXPECT_TRUE(report.ok()) << report.status();
    return report.ok() ? report->images[0].png : "";
  };
  const auto none = drawn("min_score_threshold: 1 max_num_boxes_to_visualize: 100");
  const auto one = drawn("min_score_threshold: 0 max_num_boxes_to_visualize: 1");
  const auto all = drawn("min_score_threshold: 0 max_num_boxes_to_visualize: 100");
  EXPECT_NE(one, none);
  EXPECT_NE(all, none);
  EXPECT_NE(all, one);
}

// No class reaches the score threshold, so the report has to explain an mAP of 0.
TEST_F(DetectionEvaluationTest, ExplainsAnMapOfZero) {
  config::TrainEvalPipelineConfig config = MakeConfig();
  config.mutable_model()
      ->mutable_ssd()
      ->mutable_post_processing()
      ->mutable_batch_non_max_suppression()
      ->set_score_threshold(0.999999f);
  const auto report = Evaluate(config);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->scalars[0].value, 0.0);
  EXPECT_THAT(report->explanation, HasSubstr("nothing was detected on 10 images with 22 boxes"));
}

TEST_F(DetectionEvaluationTest, ExportsCocoResults) {
  ASSERT_TRUE(files_.MakeDirectory("/out").ok());
  const auto report = Evaluate(MakeConfig("export_path: '/out/results.json'"));
  ASSERT_TRUE(report.ok()) << report.status();
  const auto text = ReadWholeFile(files_, "/out/results.json");
  ASSERT_TRUE(text.ok()) << text.status();
  const nlohmann::json results = nlohmann::json::parse(*text);
  ASSERT_FALSE(results.empty());
  for (const nlohmann::json& result : results) {
    EXPECT_LT(result["image_id"].get<int>(), 10);
    EXPECT_GE(result["category_id"].get<int>(), 1);
    EXPECT_LE(result["bbox"][0].get<float>() + result["bbox"][2].get<float>(), 80.01f);
  }
}

TEST_F(DetectionEvaluationTest, ChecksTheExportPathBeforeTheData) {
  auto config = MakeConfig("export_path: '/out/results.json'");
  config.mutable_eval_input_reader(0)->mutable_voc_input_reader()->set_path("/none");
  const absl::Status status = MakeEvaluation(config, "", {}, &files_, stop_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("eval_config.export_path"));
}

TEST_F(DetectionEvaluationTest, AnExportThatFailsDoesNotLoseTheMetrics) {
  ASSERT_TRUE(files_.MakeDirectory("/out").ok());
  const auto config = MakeConfig("export_path: '/out/results.json'");
  const double expected = Evaluate(config)->scalars[0].value;
  ASSERT_TRUE(files_.RemoveFile("/out/results.json").ok());
  for (int call = 0; call < 3; ++call) {  // creation, writing and syncing
    files_.SetFault(std::nullopt);
    const auto evaluation = MakeEvaluation(config, "", {}, &files_, stop_);
    ASSERT_TRUE(evaluation.ok()) << evaluation.status();
    files_.SetFault(FileFault{FileFault::Kind::kDiskFull, call});
    const std::vector<float> weights = RandomWeights((*evaluation)->layout());
    const auto report = (*evaluation)->Run(weights, 10, stop_, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->scalars[0].value, expected);
    EXPECT_TRUE(absl::IsResourceExhausted(report->export_status)) << report->export_status;
    EXPECT_TRUE(IsPassing(report->export_status));
    EXPECT_THAT(std::string(report->export_status.message()),
                HasSubstr("eval_config.export_path: "));
    EXPECT_EQ(files_.List("/out")->size(), 0u);
    const auto next = (*evaluation)->Run(weights, 10, stop_, nullptr);
    ASSERT_TRUE(next.ok()) << next.status();
    EXPECT_EQ(next->export_status, absl::OkStatus());
    ASSERT_TRUE(files_.RemoveFile("/out/results.json").ok());
  }
  // A disk that is full at the start may have room later.
  files_.SetFault(FileFault{FileFault::Kind::kDiskFull, 0, /*lasting=*/true});
  EXPECT_EQ(MakeEvaluation(config, "", {}, &files_, stop_).status(), absl::OkStatus());
}

TEST_F(DetectionEvaluationTest, SaysThatTheModelHasDiverged) {
  const auto evaluation = MakeEvaluation(MakeConfig(), "", {}, &files_, stop_);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  std::vector<float> weights = RandomWeights((*evaluation)->layout());
  std::fill(weights.begin(), weights.end(), std::nanf(""));
  const auto report = (*evaluation)->Run(weights, 10, stop_, nullptr);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->explanation,
              HasSubstr("the model has diverged: on 10 of 10 images the outputs of the network"));
}

// An image without objects leaves nothing to find, which makes neither a good nor a bad model.
TEST_F(DetectionEvaluationTest, AMetricWithoutGroundTruthIsUndefined) {
  auto config = MakeConfig("metrics_set: 'coco_detection_metrics'");
  const auto report = Evaluate(config);
  ASSERT_TRUE(report.ok()) << report.status();
  int undefined = 0;
  for (const ScalarSummary& scalar : report->scalars) {
    EXPECT_FALSE(scalar.value < 0) << scalar.tag;
    undefined += std::isnan(scalar.value) ? 1 : 0;
  }
  EXPECT_GT(undefined, 0) << "images of 96 x 80 pixels have no large objects";
}

TEST_F(DetectionEvaluationTest, StopsBeforeABatch) {
  stop_ = true;
  EXPECT_EQ(Evaluate(MakeConfig()).status().code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace pushpull
