// Cases that are small enough to compute by hand, and golden values of TensorFlow's evaluator
// (tests/reference/open_images_metrics_tf.py).
#include "worker/eval/metrics/open_images_metrics.h"

#include <cmath>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tests/worker/eval/metrics/wide_box.h"

namespace pushpull {
namespace {

TruthBox Group(float x, float width, int32_t label = 0) {
  return {.box = Wide(x, width), .label = label, .is_group_of = true};
}

double MeanOf(const OpenImagesMetrics& metrics) { return metrics.Compute().front().value; }

// Returns the mAP of one image with the only class "cat".
double MeanOf(std::vector<TruthBox> truth, std::vector<DetectedBox> detections) {
  OpenImagesMetrics metrics({{"cat"}});
  EXPECT_EQ(metrics.AddImage({"a", std::move(truth), std::move(detections)}), absl::OkStatus());
  return MeanOf(metrics);
}

TEST(OpenImagesMetricsTest, IgnoresFalseDetectionsInAGroup) {
  OpenImagesMetrics metrics({{"cat"}});
  // One single box and one group box from 100 to 200. In order of score:
  //   0.9  inside the group: ignored
  //   0.8  94 to 104, of which 4/10 lie in the group: wrong
  //   0.7  95 to 105, of which 5/10 lie in the group: ignored
  //   0.6  the single box: right
  // The precision at the recall 1/1 is 1/2; it would be 1/4 if nothing was ignored.
  DetectionRecord record{"a", {{Wide(0, 10)}, Group(100, 100)}, {}};
  record.detections = {{Wide(150, 10), 0, 0.9f},
                       {Wide(94, 10), 0, 0.8f},
                       {Wide(95, 10), 0, 0.7f},
                       {Wide(0, 10), 0, 0.6f}};
  ASSERT_EQ(metrics.AddImage(record), absl::OkStatus());
  EXPECT_EQ(MeanOf(metrics), 0.5);
  EXPECT_EQ(metrics.matches(0), 1);
  EXPECT_TRUE(metrics.MustBeFound(record.ground_truth[0]));
  EXPECT_FALSE(metrics.MustBeFound(record.ground_truth[1]));
}

// A group that is found adds nothing to the true positives, and one that is missed is not missing.
TEST(OpenImagesMetricsTest, AGroupNeedNotBeFound) {
  EXPECT_EQ(MeanOf({{Wide(0, 10)}, Group(100, 100)}, {{Wide(0, 10), 0, 0.9f}}), 1.0);
  EXPECT_EQ(MeanOf({{Wide(0, 10)}, Group(100, 100)}, {{Wide(100, 100), 0, 0.9f}}), 0.0);
  EXPECT_TRUE(std::isnan(MeanOf({Group(100, 100)}, {{Wide(100, 100), 0, 0.9f}})));
}

// A single box within a group is found as usual. Its second detection is wrong outside of groups
// and ignored within one.
TEST(OpenImagesMetricsTest, MatchesSingleBoxesBeforeGroups) {
  const std::vector<DetectedBox> twice_and_another = {
      {Wide(10, 10), 0, 0.9f}, {Wide(10, 10), 0, 0.8f}, {Wide(300, 10), 0, 0.7f}};
  const std::vector<TruthBox> single = {{Wide(10, 10)}, {Wide(300, 10)}};
  // Right, wrong, right: 1/2 * 1 + 1/2 * 2/3.
  EXPECT_NEAR(MeanOf(single, twice_and_another), 0.5 + 1.0 / 3.0, 1e-12);
  std::vector<TruthBox> with_group = single;
  with_group.push_back(Group(0, 100));
  EXPECT_EQ(MeanOf(with_group, twice_and_another), 1.0);
}

TEST(OpenImagesMetricsTest, AGroupOfAnotherClassOrImageIgnoresNothing) {
  OpenImagesMetrics metrics({{"cat", "dog"}});
  ASSERT_EQ(metrics.AddImage({"a", {Group(100, 100, 1)}, {{Wide(150, 10), 0, 0.9f}}}),
            absl::OkStatus());
  ASSERT_EQ(metrics.AddImage({"b", {{Wide(0, 10)}}, {{Wide(0, 10), 0, 0.8f}}}), absl::OkStatus());
  const std::vector<MetricValue> values = metrics.Compute();
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[0].tag, "OpenImagesV2_Precision/mAP@0.5IOU");
  EXPECT_EQ(values[0].value, 0.5);  // the mean over the only class with a box that must be found
  EXPECT_EQ(values[1].tag, "OpenImagesV2_PerformanceByCategory/AP@0.5IOU/cat");
  EXPECT_EQ(values[1].value, 0.5);
  EXPECT_EQ(values[2].tag, "OpenImagesV2_PerformanceByCategory/AP@0.5IOU/dog");
  EXPECT_TRUE(std::isnan(values[2].value));
}

TEST(OpenImagesMetricsTest, DifficultBoxesAreOrdinaryBoxes) {
  const TruthBox difficult = {.box = Wide(20, 10), .difficult = true};
  EXPECT_EQ(MeanOf({{Wide(0, 10)}, difficult}, {{Wide(0, 10), 0, 0.9f}}), 0.5);
  EXPECT_EQ(MeanOf({difficult}, {{Wide(20, 10), 0, 0.9f}}), 1.0);
}

TEST(OpenImagesMetricsTest, RefusesBadRecords) {
  OpenImagesMetrics metrics({{"cat"}});
  EXPECT_EQ(metrics.AddImage({"bad", {{Wide(0, 10), 1}}, {}}).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(OpenImagesMetricsTest, AgreesWithTensorflow) {
  std::ifstream file(PUSHPULL_SOURCE_DIR "/tests/golden/open_images_metrics.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_EQ(golden.size(), 4u);
  const auto expect = [](double got, const nlohmann::json& expected) {
    if (expected.is_null()) {
      EXPECT_TRUE(std::isnan(got)) << got;
    } else {
      EXPECT_NEAR(got, expected.get<double>(), 1e-9);
    }
  };
  for (const auto& [name, expected] : golden.items()) {
    SCOPED_TRACE(name);
    OpenImagesMetrics metrics({{"0", "1", "2", "3"}});
    for (const nlohmann::json& image : expected["images"]) {
      DetectionRecord record;
      for (const nlohmann::json& row : image["truth"]) {
        TruthBox& truth = record.ground_truth.emplace_back();
        truth.box = {row[0], row[1], row[2], row[3]};
        truth.label = row[4];
        truth.is_group_of = row[5].get<int>() != 0;
      }
      for (const nlohmann::json& row : image["detections"]) {
        record.detections.push_back({{row[0], row[1], row[2], row[3]}, row[4], row[5]});
      }
      ASSERT_EQ(metrics.AddImage(record), absl::OkStatus());
    }
    const std::vector<MetricValue> values = metrics.Compute();
    ASSERT_EQ(values.size(), 5u);
    expect(values[0].value, expected["mean"]);
    for (int i = 0; i < 4; ++i) expect(values[i + 1].value, expected["by_class"][i]);
  }
}

}  // namespace
}  // namespace pushpull
