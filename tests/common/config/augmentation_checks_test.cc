// The checks of ssd_random_crop_fixed_aspect_ratio, of the areas of all crops, of the ranges of
// padded sizes, and of the steps that a detector cannot have; validate_config_test.cc has those of
// the other steps.
#include "common/config/augmentation_checks.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/validate_config.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

std::vector<ConfigProblem> StepProblems(const std::string& step) {
  config::TrainConfig train;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("data_augmentation_options { ", step, " }"), &train))
      << step;
  FieldChecker checker;
  CheckAugmentation(train, &checker);
  return checker.problems();
}

std::vector<ConfigProblem> CropProblems(const std::string& fixed_aspect_ratio) {
  return StepProblems(
      absl::StrCat("ssd_random_crop_fixed_aspect_ratio { ", fixed_aspect_ratio, " }"));
}

TEST(AugmentationChecksTest, AcceptsCropsOfAFixedAspectRatio) {
  for (const char* good :
       {"", "aspect_ratio: 0.1", "aspect_ratio: 3 operations { max_area: 1 overlap_thresh: 1 }"}) {
    EXPECT_TRUE(CropProblems(good).empty()) << good;
  }
}

TEST(AugmentationChecksTest, NamesTheFieldThatIsWrong) {
  struct Case {
    const char* text;
    const char* field;
  };
  for (const Case& bad : {
           Case{"aspect_ratio: 0", "aspect_ratio"},
           Case{"aspect_ratio: -1", "aspect_ratio"},
           Case{"aspect_ratio: inf", "aspect_ratio"},
           Case{"operations {}", "operations[0].max_area"},
           Case{"operations { min_area: 0.5 }", "operations[0].max_area"},
           Case{"operations { max_area: nan }", "operations[0].max_area"},
           Case{"operations { max_area: 1.1 }", "operations[0].max_area"},
           Case{"operations { max_area: 0.4 min_area: 0.5 }", "operations[0].max_area"},
           Case{"operations { max_area: 1 } operations { max_area: 1 min_object_covered: 2 }",
                "operations[1].min_object_covered"},
           Case{"operations { max_area: 1 overlap_thresh: -0.1 }", "operations[0].overlap_thresh"},
           Case{"operations { max_area: 1 random_coef: nan }", "operations[0].random_coef"},
       }) {
    const std::vector<ConfigProblem> problems = CropProblems(bad.text);
    ASSERT_EQ(problems.size(), 1u) << bad.text;
    EXPECT_EQ(problems[0].field, absl::StrCat("train_config.data_augmentation_options[0]."
                                              "ssd_random_crop_fixed_aspect_ratio.",
                                              bad.field))
        << bad.text;
  }
}

// An area without a value is 0, and an image has no window of that area.
TEST(AugmentationChecksTest, EveryCropNeedsAnArea) {
  for (const char* begin :
       {"ssd_random_crop { operations { min_aspect_ratio: 1 max_aspect_ratio: 1 ",
        "ssd_random_crop_pad { operations { min_aspect_ratio: 1 max_aspect_ratio: 1 "
        "min_padded_size_ratio: [1, 1] max_padded_size_ratio: [2, 2] ",
        "ssd_random_crop_fixed_aspect_ratio { operations { "}) {
    EXPECT_TRUE(StepProblems(absl::StrCat(begin, "max_area: 0.5 } }")).empty()) << begin;
    const std::vector<ConfigProblem> problems = StepProblems(absl::StrCat(begin, "} }"));
    ASSERT_EQ(problems.size(), 1u) << begin;
    EXPECT_TRUE(absl::EndsWith(problems[0].field, ".operations[0].max_area")) << begin;
  }
  EXPECT_EQ(StepProblems("random_crop_image { max_area: 0 }").size(), 1u);
}

TEST(AugmentationChecksTest, TheLargestPaddedSideIsNotBelowTheSmallest) {
  for (const char* good : {"", "min_image_height: 400", "max_image_width: 300",
                           "min_image_height: 400 max_image_height: 400 max_image_width: 300",
                           "min_image_width: 400 max_image_width: 0"}) {
    EXPECT_TRUE(StepProblems(absl::StrCat("random_pad_image { ", good, " }")).empty()) << good;
  }
  for (const std::string side : {"height", "width"}) {
    const std::vector<ConfigProblem> problems = StepProblems(
        absl::StrCat("random_pad_image { min_image_", side, ": 400 max_image_", side, ": 399 }"));
    ASSERT_EQ(problems.size(), 1u) << side;
    EXPECT_TRUE(absl::EndsWith(problems[0].field, ".random_pad_image.max_image_" + side));
    EXPECT_TRUE(absl::StrContains(problems[0].expected, "min_image_" + side + " (400)"));
  }
}

TEST(AugmentationChecksTest, AcceptsTheDefaultsOfCropsAndPads) {
  config::TrainConfig train;
  train.add_data_augmentation_options()->mutable_ssd_random_crop();
  train.add_data_augmentation_options()->mutable_ssd_random_crop_pad();
  FieldChecker checker;
  CheckAugmentation(train, &checker);
  EXPECT_TRUE(checker.problems().empty());
}

// random_shift moves the pixels and not the boxes.
TEST(AugmentationChecksTest, RefusesARandomShiftForADetectorOnly) {
  const std::string shift =
      "data_augmentation_options { random_horizontal_flip {} } "
      "data_augmentation_options { random_shift { max_pixels: 3 } }";
  config::TrainEvalPipelineConfig config = MakeSsdTestConfig("ssd_mobilenet_v1", "", shift);
  const auto problems_of_shift = [&config] {
    std::vector<std::string> fields;
    for (const ConfigProblem& problem : ValidatePipelineConfig(config, {}).problems) {
      if (absl::StrContains(problem.field, "data_augmentation_options")) {
        fields.push_back(problem.field);
      }
    }
    return fields;
  };
  EXPECT_EQ(problems_of_shift(),
            (std::vector<std::string>{"train_config.data_augmentation_options[1].random_shift"}));
  config.mutable_model()->mutable_classifier();
  EXPECT_EQ(problems_of_shift(), std::vector<std::string>());
}

}  // namespace
}  // namespace pushpull
