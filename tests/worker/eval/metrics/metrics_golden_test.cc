// COCO and Pascal VOC metrics against golden values that
// tests/reference/coco_metrics_pycocotools.py computed with pycocotools and numpy.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "worker/eval/metrics/coco_metrics.h"
#include "worker/eval/metrics/voc_metrics.h"

namespace pushpull {
namespace {

constexpr double kTolerance = 1e-6;

const char* const kSummaryTags[] = {"DetectionBoxes_Precision/mAP",
                                    "DetectionBoxes_Precision/mAP@.50IOU",
                                    "DetectionBoxes_Precision/mAP@.75IOU",
                                    "DetectionBoxes_Precision/mAP (small)",
                                    "DetectionBoxes_Precision/mAP (medium)",
                                    "DetectionBoxes_Precision/mAP (large)",
                                    "DetectionBoxes_Recall/AR@1",
                                    "DetectionBoxes_Recall/AR@10",
                                    "DetectionBoxes_Recall/AR@100",
                                    "DetectionBoxes_Recall/AR@100 (small)",
                                    "DetectionBoxes_Recall/AR@100 (medium)",
                                    "DetectionBoxes_Recall/AR@100 (large)"};

std::filesystem::path Folder() {
  return std::filesystem::path(PUSHPULL_SOURCE_DIR) / "tests/golden/detection_metrics";
}

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  std::error_code error;  // a missing folder gives no names, which the last test reports
  for (const auto& entry : std::filesystem::directory_iterator(Folder(), error)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

nlohmann::json ReadCase(const std::string& name) {
  std::ifstream file(Folder() / (name + ".json"));
  return nlohmann::json::parse(file);
}

PixelBox BoxOf(const nlohmann::json& row) { return {row[0], row[1], row[2], row[3]}; }

void AddImages(const nlohmann::json& golden, DetectionMetrics* metrics) {
  for (const nlohmann::json& image : golden["images"]) {
    DetectionRecord record;
    for (const nlohmann::json& row : image["truth"]) {
      record.ground_truth.push_back(
          {BoxOf(row), row[4], row[5].get<int>() != 0, row[6].get<int>() != 0, row[7]});
    }
    for (const nlohmann::json& row : image["detections"]) {
      record.detections.push_back({BoxOf(row), row[4], row[5]});
    }
    ASSERT_TRUE(metrics->AddImage(record).ok());
  }
}

DetectionMetricsOptions OptionsFor(const nlohmann::json& golden) {
  DetectionMetricsOptions options;
  for (int i = 0; i < golden["num_classes"].get<int>(); ++i) {
    options.class_names.push_back("class " + std::to_string(i));
  }
  return options;
}

void ExpectValue(const MetricValue& got, const std::string& tag, const nlohmann::json& expected) {
  EXPECT_EQ(got.tag, tag);
  if (expected.is_null()) {
    EXPECT_TRUE(std::isnan(got.value)) << tag << " is " << got.value << ", expected NaN";
  } else {
    EXPECT_NEAR(got.value, expected.get<double>(), kTolerance) << tag;
  }
}

class MetricsGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(MetricsGoldenTest, CocoAgreesWithPycocotools) {
  const nlohmann::json golden = ReadCase(GetParam());
  const DetectionMetricsOptions options = OptionsFor(golden);
  CocoMetrics metrics(options);
  AddImages(golden, &metrics);
  const std::vector<MetricValue> values = metrics.Compute();
  const size_t classes = options.class_names.size();
  ASSERT_EQ(values.size(), 12 + classes);
  for (size_t i = 0; i < 12; ++i) ExpectValue(values[i], kSummaryTags[i], golden["coco"][i]);
  for (size_t i = 0; i < classes; ++i) {
    ExpectValue(values[12 + i],
                "DetectionBoxes_PerformanceByCategory/mAP/" + options.class_names[i],
                golden["coco_by_class"][i]);
  }
}

TEST_P(MetricsGoldenTest, VocAgreesWithNumpy) {
  const nlohmann::json golden = ReadCase(GetParam());
  const DetectionMetricsOptions options = OptionsFor(golden);
  VocMetrics metrics(options);
  AddImages(golden, &metrics);
  const std::vector<MetricValue> values = metrics.Compute();
  const size_t classes = options.class_names.size();
  ASSERT_EQ(values.size(), 1 + classes);
  ExpectValue(values[0], "PascalBoxes_Precision/mAP@0.5IOU", golden["voc"]);
  for (size_t i = 0; i < classes; ++i) {
    ExpectValue(values[1 + i],
                "PascalBoxes_PerformanceByCategory/AP@0.5IOU/" + options.class_names[i],
                golden["voc_by_class"][i]);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, MetricsGoldenTest, testing::ValuesIn(CaseNames()),
                         [](const auto& info) { return info.param; });

TEST(MetricsGoldenFolderTest, HoldsTheDifficultCases) {
  EXPECT_THAT(CaseNames(), testing::IsSupersetOf({"random", "ties", "many_detections", "only_crowd",
                                                  "only_difficult", "no_truth", "no_detections",
                                                  "thresholds", "masks"}));
}

}  // namespace
}  // namespace pushpull
