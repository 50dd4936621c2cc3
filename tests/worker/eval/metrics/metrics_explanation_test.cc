#include "worker/eval/metrics/metrics_explanation.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/worker/eval/metrics/wide_box.h"
#include "worker/eval/metrics/coco_metrics.h"
#include "worker/eval/metrics/voc_metrics.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

class MetricsExplanationTest : public testing::Test {
 protected:
  void Add(const DetectionRecord& record) {
    ASSERT_TRUE(coco_.AddImage(record).ok());
    ASSERT_TRUE(voc_.AddImage(record).ok());
    coco_explanation_.AddImage(record);
    voc_explanation_.AddImage(record);
  }

  std::string ExplainCoco() const {
    return coco_explanation_.Explain(coco_.Compute().front().value);
  }
  std::string ExplainVoc() const { return voc_explanation_.Explain(voc_.Compute().front().value); }

  const std::vector<std::string> names_ = {"cat", "dog", "owl"};
  CocoMetrics coco_{{names_}};
  VocMetrics voc_{{names_}};
  MetricsExplanation coco_explanation_{&coco_, names_};
  MetricsExplanation voc_explanation_{&voc_, names_};
};

TEST_F(MetricsExplanationTest, CountsPerClass) {
  Add({"a",
       {{Wide(0, 10), 0}, {.box = Wide(20, 10), .difficult = true}, {Wide(40, 10), 1}},
       {{Wide(0, 10), 0, 0.9f}, {Wide(80, 10), 0, 0.9f}}});
  const std::vector<ClassCounts> voc = voc_explanation_.Counts();
  ASSERT_EQ(voc.size(), 3);
  EXPECT_EQ(voc[0].ground_truth, 1);
  EXPECT_EQ(voc[0].ignored, 1);
  EXPECT_EQ(voc[0].detections, 2);
  EXPECT_EQ(voc[0].matches, 1);
  EXPECT_EQ(voc[1].ground_truth, 1);
  EXPECT_EQ(voc[1].matches, 0);
  EXPECT_EQ(coco_explanation_.Counts()[0].ground_truth, 2);
  EXPECT_EQ(ExplainVoc(), "");
  EXPECT_EQ(ExplainCoco(), "");
}

TEST_F(MetricsExplanationTest, TheTableOmitsEmptyClasses) {
  Add({"a", {{Wide(0, 10), 1}}, {{Wide(0, 10), 1, 0.9f}}});
  const std::string table = coco_explanation_.Table();
  EXPECT_THAT(table, HasSubstr("\ndog "));
  EXPECT_THAT(table, HasSubstr("\nall "));
  EXPECT_THAT(table, testing::Not(HasSubstr("cat")));
}

TEST_F(MetricsExplanationTest, ExplainsThatThereAreNoImages) {
  EXPECT_THAT(ExplainCoco(), HasSubstr("mAP is undefined because no image was evaluated"));
  EXPECT_THAT(ExplainVoc(), HasSubstr("no image was evaluated"));
}

TEST_F(MetricsExplanationTest, ExplainsThatNoGroundTruthCounts) {
  Add({"a", {{.box = Wide(0, 10), .difficult = true, .is_crowd = true}}, {{Wide(0, 10), 0, 0.9f}}});
  EXPECT_THAT(ExplainCoco(), HasSubstr("mAP is undefined because none of the 1 images"));
  EXPECT_THAT(ExplainCoco(), HasSubstr("(1 are ignored"));
  EXPECT_THAT(ExplainVoc(), HasSubstr("mAP is undefined because none of the 1 images"));
}

TEST_F(MetricsExplanationTest, ExplainsThatThereAreNoDetections) {
  Add({"a", {{Wide(0, 10), 0}}, {}});
  EXPECT_THAT(ExplainVoc(), HasSubstr("nothing was detected on 1 images"));
}

TEST_F(MetricsExplanationTest, ExplainsBoxesInFractionsInsteadOfPixels) {
  Add({"a", {{Wide(0, 100), 0}}, {{{0, 0, 0.1f, 1}, 0, 0.9f}}});
  EXPECT_THAT(ExplainVoc(), HasSubstr("different units"));
}

TEST_F(MetricsExplanationTest, ExplainsShiftedLabels) {
  Add({"a", {{Wide(0, 10), 0}, {Wide(50, 10), 1}}, {{Wide(0, 10), 1, 0.9f}}});
  EXPECT_THAT(ExplainCoco(), HasSubstr("1 of 2 boxes are covered"));
}

TEST_F(MetricsExplanationTest, ExplainsBoxesThatMiss) {
  Add({"a", {{Wide(0, 10), 0}}, {{Wide(0, 4), 0, 0.9f}}});
  EXPECT_THAT(ExplainCoco(), HasSubstr("the largest IoU of the same class is 0.400"));
}

TEST_F(MetricsExplanationTest, AnIouBelowTheThresholdIsNotRoundedUpToIt) {
  Add({"a", {{Wide(0, 1000), 0}}, {{Wide(0, 499.8f), 0, 0.9f}}});
  EXPECT_THAT(ExplainCoco(), HasSubstr("the largest IoU of the same class is 0.499"));
}

}  // namespace
}  // namespace pushpull
