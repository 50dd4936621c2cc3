// Cases that are small enough to compute by hand.
#include "worker/eval/metrics/voc_metrics.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/worker/eval/metrics/wide_box.h"

namespace pushpull {
namespace {

double MeanOf(const VocMetrics& metrics) { return metrics.Compute().front().value; }

TEST(VocMetricsTest, ComputesTheAreaUnderTheEnvelope) {
  VocMetrics metrics({{"cat"}});
  DetectionRecord record{"a", {{Wide(0, 10)}, {Wide(20, 10)}, {Wide(40, 10)}, {Wide(60, 10)}}, {}};
  // In order of score: right, wrong, right, right, wrong. The precision is 1, 1/2, 2/3, 3/4, 3/5 at
  // the recall 1/4, 1/4, 2/4, 3/4, 3/4.
  record.detections = {{Wide(200, 10), 0, 0.5f},
                       {Wide(0, 10), 0, 0.9f},
                       {Wide(40, 10), 0, 0.6f},
                       {Wide(100, 10), 0, 0.8f},
                       {Wide(20, 10), 0, 0.7f}};
  ASSERT_TRUE(metrics.AddImage(record).ok());
  EXPECT_NEAR(MeanOf(metrics), 0.25 * 1 + 0.25 * 0.75 + 0.25 * 0.75, 1e-12);
  EXPECT_EQ(metrics.matches(0), 3);
}

TEST(VocMetricsTest, TheSecondDetectionOfABoxIsFalse) {
  VocMetrics metrics({{"cat"}});
  // The second detection has an IoU of 19/21 with the matched box and of 17/23 with the free box,
  // which it would match if the box that it overlaps most did not decide.
  DetectionRecord record{"a", {{Wide(0, 10)}, {Wide(-2, 10)}}, {}};
  record.detections = {{Wide(0, 10), 0, 0.9f}, {Wide(-0.5, 10), 0, 0.8f}};
  ASSERT_TRUE(metrics.AddImage(record).ok());
  EXPECT_NEAR(MeanOf(metrics), 0.5, 1e-12);
  EXPECT_EQ(metrics.matches(0), 1);
}

TEST(VocMetricsTest, AnIouOfExactlyOneHalfMatches) {
  for (const auto& [width, expected] : {std::pair{5.0f, 1.0}, std::pair{4.75f, 0.0}}) {
    VocMetrics metrics({{"cat"}});
    ASSERT_TRUE(metrics.AddImage({"a", {{Wide(0, 10)}}, {{Wide(0, width), 0, 0.9f}}}).ok());
    EXPECT_EQ(MeanOf(metrics), expected) << width;
  }
}

TEST(VocMetricsTest, DifficultBoxesAreNeitherFoundNorMissed) {
  VocMetrics metrics({{"cat"}});
  DetectionRecord record{"a", {{Wide(0, 10)}, {.box = Wide(20, 10), .difficult = true}}, {}};
  record.detections = {{Wide(20, 10), 0, 0.9f}, {Wide(21, 10), 0, 0.8f}, {Wide(0, 10), 0, 0.7f}};
  ASSERT_TRUE(metrics.AddImage(record).ok());
  EXPECT_EQ(MeanOf(metrics), 1);
  EXPECT_TRUE(metrics.MustBeFound(record.ground_truth[0]));
  EXPECT_FALSE(metrics.MustBeFound(record.ground_truth[1]));
}

TEST(VocMetricsTest, OfEqualOverlapsTheFirstBoxDecides) {
  VocMetrics metrics({{"cat"}});
  DetectionRecord record{"a", {{Wide(0, 10)}, {.box = Wide(0, 10), .difficult = true}}, {}};
  record.detections = {{Wide(0, 10), 0, 0.9f}};  // with the second it would be ignored
  ASSERT_TRUE(metrics.AddImage(record).ok());
  EXPECT_EQ(MeanOf(metrics), 1);
}

TEST(VocMetricsTest, ClassesWithoutBoxesDoNotCountInTheMean) {
  VocMetrics metrics({{"cat", "dog", "owl"}});
  DetectionRecord record{"a", {{Wide(0, 10), 0}, {Wide(20, 10), 2}}, {}};
  record.detections = {{Wide(0, 10), 0, 0.9f}, {Wide(40, 10), 1, 0.9f}};
  ASSERT_TRUE(metrics.AddImage(record).ok());
  const std::vector<MetricValue> values = metrics.Compute();
  ASSERT_EQ(values.size(), 4);
  EXPECT_EQ(values[0].value, 0.5);
  EXPECT_EQ(values[1].tag, "PascalBoxes_PerformanceByCategory/AP@0.5IOU/cat");
  EXPECT_EQ(values[1].value, 1);
  EXPECT_TRUE(std::isnan(values[2].value));
  EXPECT_EQ(values[3].value, 0);
}

TEST(VocMetricsTest, WithoutDetectionsTheMeanIsZero) {
  VocMetrics metrics({{"cat"}});
  ASSERT_TRUE(metrics.AddImage({"a", {{Wide(0, 10)}}, {}}).ok());
  ASSERT_TRUE(metrics.AddImage({"b", {}, {}}).ok());
  EXPECT_EQ(MeanOf(metrics), 0);
  EXPECT_EQ(metrics.matches(0), 0);
}

TEST(VocMetricsTest, WithoutImagesOrClassesTheMeanIsUndefined) {
  EXPECT_TRUE(std::isnan(MeanOf(VocMetrics({{"cat"}}))));
  EXPECT_TRUE(std::isnan(MeanOf(VocMetrics(DetectionMetricsOptions{}))));
}

TEST(VocMetricsTest, ReturnsOnlyTheSummaryOnRequest) {
  const VocMetrics metrics({.class_names = {"cat", "dog"}, .per_category = false});
  EXPECT_EQ(metrics.Compute().size(), 1);
}

TEST(VocMetricsTest, RefusesBadRecordsWithoutCountingThem) {
  VocMetrics metrics({{"cat"}});
  ASSERT_TRUE(metrics.AddImage({"good", {{Wide(0, 10)}}, {{Wide(0, 10), 0, 0.9f}}}).ok());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const DetectionRecord bad[] = {{"bad", {{Wide(0, 10), 1}}, {}},
                                 {"bad", {{Wide(0, 10), -1}}, {}},
                                 {"bad", {{Wide(0, nan), 0}}, {}},
                                 {"bad", {{.box = Wide(0, 10), .area = -1}}, {}},
                                 {"bad", {{.box = Wide(0, 10), .area = nan}}, {}},
                                 {"bad", {{Wide(0, 10)}}, {{Wide(0, 10), 1, 0.5f}}},
                                 {"bad", {{Wide(0, 10)}}, {{Wide(0, infinity), 0, 0.5f}}},
                                 {"bad", {{Wide(0, 10)}}, {{Wide(0, 10), 0, nan}}}};
  for (const DetectionRecord& record : bad) {
    const absl::Status status = metrics.AddImage(record);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("image 'bad'"));
  }
  EXPECT_EQ(MeanOf(metrics), 1);
}

}  // namespace
}  // namespace pushpull
