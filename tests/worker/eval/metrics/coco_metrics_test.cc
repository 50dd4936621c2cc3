// Cases that are small enough to compute by hand.
#include "worker/eval/metrics/coco_metrics.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

#include "tests/worker/eval/metrics/wide_box.h"

namespace pushpull {
namespace {

std::map<std::string, double> ValuesOf(const CocoMetrics& metrics) {
  std::map<std::string, double> values;
  for (const MetricValue& value : metrics.Compute()) values[value.tag] = value.value;
  return values;
}

TEST(CocoMetricsTest, AMatchCountsAtTheThresholdsBelowItsIou) {
  CocoMetrics metrics({{"cat"}});
  // An IoU of 0.8 is a match at the thresholds 0.50 to 0.80, which are seven of ten.
  ASSERT_TRUE(metrics.AddImage({"a", {{Wide(0, 10)}}, {{Wide(0, 8), 0, 0.9f}}}).ok());
  const auto values = ValuesOf(metrics);
  EXPECT_NEAR(values.at("DetectionBoxes_Precision/mAP"), 0.7, 1e-12);
  EXPECT_NEAR(values.at("DetectionBoxes_Precision/mAP@.50IOU"), 1, 1e-12);
  EXPECT_NEAR(values.at("DetectionBoxes_Precision/mAP@.75IOU"), 1, 1e-12);
  EXPECT_NEAR(values.at("DetectionBoxes_Precision/mAP (small)"), 0.7, 1e-12);
  EXPECT_EQ(values.at("DetectionBoxes_Precision/mAP (medium)"), -1);
  EXPECT_EQ(values.at("DetectionBoxes_Recall/AR@100 (large)"), -1);
  EXPECT_NEAR(values.at("DetectionBoxes_Recall/AR@1"), 0.7, 1e-12);
  EXPECT_NEAR(values.at("DetectionBoxes_PerformanceByCategory/mAP/cat"), 0.7, 1e-12);
  EXPECT_EQ(metrics.matches(0), 1);
}

TEST(CocoMetricsTest, ARecallOfOneHalfGives51Of101Points) {
  CocoMetrics metrics({{"cat"}});
  ASSERT_TRUE(
      metrics.AddImage({"a", {{Wide(0, 10)}, {Wide(20, 10)}}, {{Wide(0, 10), 0, 0.9f}}}).ok());
  EXPECT_NEAR(metrics.Compute().front().value, 51.0 / 101, 1e-12);
}

TEST(CocoMetricsTest, MatchesAnotherBoxIfTheBestIsTaken) {
  CocoMetrics metrics({{"cat"}});
  // The second detection has an IoU of 9/11 with the matched box and of 2/3 with the free box.
  DetectionRecord record{"a", {{Wide(0, 10)}, {Wide(3, 10)}}, {}};
  record.detections = {{Wide(0, 10), 0, 0.9f}, {Wide(1, 10), 0, 0.8f}};
  ASSERT_TRUE(metrics.AddImage(record).ok());
  EXPECT_EQ(metrics.matches(0), 2);
}

TEST(CocoMetricsTest, ACrowdBoxAbsorbsAnyNumberOfDetections) {
  CocoMetrics metrics({{"cat"}});
  DetectionRecord record{"a", {{Wide(0, 10)}, {.box = Wide(100, 100), .is_crowd = true}}, {}};
  record.detections = {{Wide(110, 10), 0, 0.9f}, {Wide(130, 10), 0, 0.8f}, {Wide(0, 10), 0, 0.7f}};
  ASSERT_TRUE(metrics.AddImage(record).ok());
  const auto values = ValuesOf(metrics);
  EXPECT_NEAR(values.at("DetectionBoxes_Precision/mAP"), 1, 1e-12);
  // AR@1 only counts the best detection, which the crowd box absorbs.
  EXPECT_EQ(values.at("DetectionBoxes_Recall/AR@1"), 0);
  EXPECT_FALSE(metrics.MustBeFound(record.ground_truth[1]));
}

TEST(CocoMetricsTest, AreaOfTheMaskDecidesTheSize) {
  CocoMetrics metrics({{"cat"}});
  // The box has 2000 square pixels and the mask 1000.
  ASSERT_TRUE(metrics
                  .AddImage({"a",
                             {{.box = Wide(0, 200), .area = 1000}},
                             {{Wide(0, 200), 0, 0.9f}, {Wide(500, 200), 0, 0.95f}}})
                  .ok());
  const auto values = ValuesOf(metrics);
  // The false detection is of medium size, so it counts for "all" but not for "small".
  EXPECT_NEAR(values.at("DetectionBoxes_Precision/mAP (small)"), 1, 1e-12);
  EXPECT_NEAR(values.at("DetectionBoxes_Precision/mAP"), 0.5, 1e-12);
  EXPECT_EQ(values.at("DetectionBoxes_Precision/mAP (medium)"), -1);
}

TEST(CocoMetricsTest, KeepsTheHundredBestDetectionsOfAnImage) {
  CocoMetrics metrics({{"cat"}});
  DetectionRecord record{"a", {{Wide(0, 10)}}, {{Wide(0, 10), 0, 0.25f}}};
  for (int i = 0; i < 100; ++i) record.detections.push_back({Wide(100, 10), 0, 0.5f});
  ASSERT_TRUE(metrics.AddImage(record).ok());
  EXPECT_EQ(metrics.Compute().front().value, 0);
  EXPECT_EQ(metrics.matches(0), 0);
  // With one detection less, the right one is the hundredth.
  record.detections.pop_back();
  CocoMetrics all_kept({{"cat"}});
  ASSERT_TRUE(all_kept.AddImage(record).ok());
  EXPECT_NEAR(all_kept.Compute().front().value, 0.01, 1e-12);
}

TEST(CocoMetricsTest, WithoutDetectionsPrecisionAndRecallAreZero) {
  CocoMetrics metrics({{"cat"}});
  ASSERT_TRUE(metrics.AddImage({"a", {{Wide(0, 10)}}, {}}).ok());
  ASSERT_TRUE(metrics.AddImage({"b", {}, {}}).ok());
  const auto values = ValuesOf(metrics);
  EXPECT_EQ(values.at("DetectionBoxes_Precision/mAP"), 0);
  EXPECT_EQ(values.at("DetectionBoxes_Precision/mAP (large)"), -1);
  for (const char* tag : {"AR@1", "AR@10", "AR@100", "AR@100 (small)"}) {
    EXPECT_EQ(values.at(std::string("DetectionBoxes_Recall/") + tag), 0) << tag;
  }
  EXPECT_EQ(metrics.matches(0), 0);
}

TEST(CocoMetricsTest, AbsentGroundTruthGivesMinusOne) {
  for (const MetricValue& value : CocoMetrics({{"cat"}}).Compute()) {
    EXPECT_EQ(value.value, -1) << value.tag;
  }
  EXPECT_EQ(CocoMetrics({.class_names = {"cat"}, .per_category = false}).Compute().size(), 12);
}

TEST(CocoMetricsTest, RefusesLabelsOutsideTheMap) {
  CocoMetrics metrics({{"cat"}});
  const absl::Status status = metrics.AddImage({"a", {}, {{Wide(0, 1), 7, 0.5f}}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("image 'a', detection 0: label 7 is outside 0..0"),
            absl::string_view::npos)
      << status;
}

}  // namespace
}  // namespace pushpull
