#include "common/config/anchor_checks.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/validate_config.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// Returns the problems of a generator with two layers and the fields of `text`.
std::vector<ConfigProblem> AnchorProblems(const std::string& text) {
  config::SsdAnchorGenerator anchors;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      "num_layers: 2 aspect_ratios: 1 " + text, &anchors))
      << text;
  FieldChecker checker;
  CheckAnchorPlaces(anchors, "anchors", &checker);
  return checker.problems();
}

TEST(AnchorChecksTest, AcceptsStridesAndOffsetsForEachLayer) {
  for (const char* good : {
           "",
           "height_stride: [16, 32] width_stride: [8, 4096]",
           "height_offset: [0, 16] width_offset: [4, 4096]",
           "height_stride: [1, 32] width_stride: [8, 16] height_offset: [0, 0] width_offset: [4, "
           "8]",
       }) {
    EXPECT_EQ(AnchorProblems(good).size(), 0u) << good;
  }
}

TEST(AnchorChecksTest, NamesTheFieldThatIsWrong) {
  struct Case {
    const char* text;
    const char* field;
  };
  for (const Case& bad : {
           Case{"height_stride: [16, 32]", "anchors.width_stride"},
           Case{"width_stride: [16, 32]", "anchors.height_stride"},
           Case{"height_stride: 16 width_stride: [16, 32]", "anchors.height_stride"},
           Case{"height_stride: [16, 32] width_stride: [1, 2, 3]", "anchors.width_stride"},
           Case{"height_stride: [16, 0] width_stride: [16, 32]", "anchors.height_stride"},
           Case{"height_stride: [16, 32] width_stride: [-16, 32]", "anchors.width_stride"},
           Case{"height_stride: [16, 4097] width_stride: [16, 32]", "anchors.height_stride"},
           Case{"height_offset: [8, 16]", "anchors.width_offset"},
           Case{"width_offset: [8, 16]", "anchors.height_offset"},
           Case{"height_offset: [8, -1] width_offset: [8, 16]", "anchors.height_offset"},
           Case{"height_offset: [8, 16] width_offset: [8, 4097]", "anchors.width_offset"},
       }) {
    const std::vector<ConfigProblem> problems = AnchorProblems(bad.text);
    ASSERT_EQ(problems.size(), 1u) << bad.text;
    EXPECT_EQ(problems[0].field, bad.field) << bad.text;
  }
}

TEST(AnchorChecksTest, AreAmongTheChecksOfAConfig) {
  const config::TrainEvalPipelineConfig config =
      MakeSsdTestConfig("ssd_mobilenet_v2",
                        "num_classes: 10 anchor_generator { ssd_anchor_generator { "
                        "height_stride: 16 width_stride: [16, 32, 64, 100, 150, 300] } }");
  const ConfigReport report = ValidatePipelineConfig(config, {});
  EXPECT_THAT(std::string(report.ToStatus("job.config").message()),
              HasSubstr("ssd_anchor_generator.height_stride: expected one per layer (num_layers: "
                        "6), got 1 numbers"));
}

}  // namespace
}  // namespace pushpull
