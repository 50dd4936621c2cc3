// Compares the detector's loss on the GPU with the CPU's.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "gtest/gtest.h"

#include "common/base/random.h"
#include "kernels/bfloat16.h"
#include "kernels/cuda/losses.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/kernels/cuda/ssd_case.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

using Classification = DetectionLossSpec::Classification;
using Localization = DetectionLossSpec::Localization;
using LossType = HardExampleMinerSpec::LossType;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <typename T>
class SsdLossTest : public DeviceFixture<testing::Test> {};
using Types = testing::Types<float, Bfloat16>;
TYPED_TEST_SUITE(SsdLossTest, Types);
class SsdLossFixture : public DeviceFixture<testing::Test> {};

DetectionSpec BaseSpec(int num_classes) {
  DetectionSpec spec;
  spec.num_classes = num_classes;
  spec.matcher.force_match_for_each_row = true;
  return spec;
}

HardExampleMinerSpec Miner(int num_hard_examples, float iou_threshold, int negatives_per_positive,
                           int min_negatives, LossType type = LossType::kBoth) {
  HardExampleMinerSpec miner;
  miner.num_hard_examples = num_hard_examples;
  miner.iou_threshold = iou_threshold;
  miner.max_negatives_per_positive = negatives_per_positive;
  miner.min_negatives_per_image = min_negatives;
  miner.loss_type = type;
  return miner;
}

using Change = std::function<void(DetectionSpec*)>;

const std::vector<std::pair<std::string, Change>>& Changes() {
  static const auto* const changes = new std::vector<std::pair<std::string, Change>>{
      {"as it is", [](DetectionSpec*) {}},
      {"focal",
       [](DetectionSpec* s) {
         s->loss.classification = Classification::kSigmoidFocal;
         s->loss.focal_gamma = 1.5f;
       }},
      {"focal with alpha",
       [](DetectionSpec* s) {
         s->loss.classification = Classification::kSigmoidFocal;
         s->loss.focal_alpha = 0.25f;
       }},
      {"softmax",
       [](DetectionSpec* s) {
         s->loss.classification = Classification::kSoftmax;
         s->loss.logit_scale = 1.7f;
       }},
      {"softmax without background",
       [](DetectionSpec* s) {
         s->loss.classification = Classification::kSoftmax;
         s->loss.encode_background_as_zeros = true;
       }},
      {"background as zeros", [](DetectionSpec* s) { s->loss.encode_background_as_zeros = true; }},
      {"L2",
       [](DetectionSpec* s) {
         s->loss.localization = Localization::kL2;
         s->loss.localization_weight = 0.3f;
       }},
      {"small delta", [](DetectionSpec* s) { s->loss.smooth_l1_delta = 0.11f; }},
      {"weights",
       [](DetectionSpec* s) {
         s->loss.classification_weight = 2.5f;
         s->loss.localization_weight = 0.4f;
         s->loss.negative_class_weight = 0.3f;
       }},
      {"silent negatives", [](DetectionSpec* s) { s->loss.negative_class_weight = 0.0f; }},
      {"not normalized", [](DetectionSpec* s) { s->loss.normalize_loss_by_num_matches = false; }},
      {"normalized by code size",
       [](DetectionSpec* s) { s->loss.normalize_loc_loss_by_codesize = true; }},
      {"ignored anchors", [](DetectionSpec* s) { s->matcher.unmatched_threshold = 0.2f; }},
      {"negatives between the thresholds",
       [](DetectionSpec* s) {
         s->matcher.unmatched_threshold = 0.3f;
         s->matcher.negatives_lower_than_unmatched = false;
       }},
      {"no thresholds", [](DetectionSpec* s) { s->matcher.ignore_thresholds = true; }},
      {"not forced", [](DetectionSpec* s) { s->matcher.force_match_for_each_row = false; }},
      {"nothing matches",
       [](DetectionSpec* s) {
         s->matcher.force_match_for_each_row = false;
         s->matcher.matched_threshold = s->matcher.unmatched_threshold = 1.5f;
       }},
      {"box coder",
       [](DetectionSpec* s) {
         s->box_coder = {7.0f, 3.0f, 2.0f, 9.0f};
       }},
      {"mined as SSD does",
       [](DetectionSpec* s) { s->loss.hard_example_miner = Miner(3000, 0.99f, 3, 0); }},
      {"mined, few", [](DetectionSpec* s) { s->loss.hard_example_miner = Miner(11, 0.7f, 0, 0); }},
      {"mined, all of them",
       [](DetectionSpec* s) { s->loss.hard_example_miner = Miner(0, 0.5f, 2, 7); }},
      {"mined, none overlap",
       [](DetectionSpec* s) { s->loss.hard_example_miner = Miner(0, 0.0f, 0, 0); }},
      {"mined, nearly none overlap",
       [](DetectionSpec* s) { s->loss.hard_example_miner = Miner(40, 0.03f, 1, 2); }},
      {"mined, all may overlap",
       [](DetectionSpec* s) { s->loss.hard_example_miner = Miner(64, 1.0f, 3, 3); }},
      {"mined by classification",
       [](DetectionSpec* s) {
         s->loss.hard_example_miner = Miner(30, 0.6f, 3, 1, LossType::kClassification);
         s->matcher.unmatched_threshold = 0.1f;
       }},
      {"mined by localization",
       [](DetectionSpec* s) {
         s->loss.hard_example_miner = Miner(50, 0.6f, 2, 4, LossType::kLocalization);
         s->matcher.unmatched_threshold = 0.1f;
       }},
      {"mined by weighted losses",
       [](DetectionSpec* s) {
         s->loss.hard_example_miner = Miner(50, 0.9f, 1, 0);
         s->loss.classification = Classification::kSoftmax;
         s->loss.classification_weight = 0.2f;
         s->loss.localization_weight = 3.0f;
       }},
  };
  return *changes;
}

TYPED_TEST(SsdLossTest, MatchesTheCpuForEverySetting) {
  uint64_t stream = 0;
  for (const auto& [name, change] : Changes()) {
    SCOPED_TRACE(name);
    DetectionSpec spec = BaseSpec(3);
    change(&spec);
    CheckSsdCase<TypeParam>(RandomSsdCase(++stream, spec, 2, {90, 31, 5}, 6));
  }
}

// The class counts use 2, 4 and 32 lanes per anchor, and several rounds.
TYPED_TEST(SsdLossTest, MatchesTheCpuForAnyNumberOfClasses) {
  for (const int classes : {1, 2, 31, 90}) {
    for (const auto kind :
         {Classification::kSigmoid, Classification::kSoftmax, Classification::kSigmoidFocal}) {
      SCOPED_TRACE(testing::Message() << classes << ", " << static_cast<int>(kind));
      DetectionSpec spec = BaseSpec(classes);
      spec.loss.classification = kind;
      spec.loss.hard_example_miner = Miner(0, 0.9f, 3, 0);
      CheckSsdCase<TypeParam>(RandomSsdCase(100 + classes, spec, 1, {45}, 4));
    }
  }
}

TYPED_TEST(SsdLossTest, MatchesTheCpuForAnyNumberOfAnchorsAndHeads) {
  DetectionSpec spec = BaseSpec(2);
  spec.loss.hard_example_miner = Miner(0, 0.8f, 3, 0);
  CheckSsdCase<TypeParam>(RandomSsdCase(200, spec, 1, {1}, 2));
  CheckSsdCase<TypeParam>(RandomSsdCase(201, spec, 3, {256, 256}, 3));
  CheckSsdCase<TypeParam>(RandomSsdCase(202, spec, 2, std::vector<int64_t>(16, 3), 40));
  CheckSsdCase<TypeParam>(RandomSsdCase(203, spec, 1, {1083, 600, 150, 54, 24, 6}, 8));
  // There are more objects than warps and more than anchors.
  CheckSsdCase<TypeParam>(RandomSsdCase(204, spec, 2, {20}, 60));
}

// The sort keys of this many anchors do not fit into shared memory.
TYPED_TEST(SsdLossTest, MatchesTheCpuForManyAnchors) {
  DetectionSpec spec = BaseSpec(1);
  spec.loss.hard_example_miner = Miner(100, 0.7f, 3, 0);
  CheckSsdCase<TypeParam>(RandomSsdCase(300, spec, 1, {4000, 97}, 5));
}

TYPED_TEST(SsdLossTest, HandlesNoObjectsAndNoSamples) {
  for (const bool mines : {false, true}) {
    DetectionSpec spec = BaseSpec(3);
    if (mines) spec.loss.hard_example_miner = Miner(0, 0.99f, 3, 5);
    CheckSsdCase<TypeParam>(RandomSsdCase(400, spec, 2, {70}, 0));
    CheckSsdCase<TypeParam>(RandomSsdCase(401, spec, 0, {70}, 0));
  }
}

TYPED_TEST(SsdLossTest, BreaksTiesLikeTheCpu) {
  for (const float iou_threshold : {0.5f, 1.0f}) {
    DetectionSpec spec = BaseSpec(3);
    spec.loss.hard_example_miner = Miner(50, iou_threshold, 3, 10);
    SsdCase tied = RandomSsdCase(500, spec, 2, {100, 33}, 3);
    tied.scores.assign(tied.scores.size(), 0.0);
    tied.codes.assign(tied.codes.size(), 0.0);
    tied.anchors.assign(tied.anchors.size(), {0.2f, 0.2f, 0.6f, 0.6f});
    for (auto& boxes : tied.objects) {
      boxes.assign(3, {{0.2f, 0.2f, 0.6f, 0.6f}, 1, 1.0f});
    }
    CheckSsdCase<TypeParam>(tied);
  }
}

// In each pair, the box of weight 0 comes first and has the same best anchor as the other one.
TYPED_TEST(SsdLossTest, ABoxOfWeightZeroForcesNoMatch) {
  const DetectionSpec spec = BaseSpec(3);
  SsdCase pairs = RandomSsdCase(550, spec, 2, {40, 20}, 0);
  for (auto& boxes : pairs.objects) {
    for (int a = 0; a < 60; a += 7) {
      BoundingBox box = pairs.anchors[a];
      box.ymax = box.ymin + 0.3f * (box.ymax - box.ymin);
      boxes.push_back({box, 0, 0.0f});
      boxes.push_back({box, 1, 1.0f});
    }
  }
  CheckSsdCase<TypeParam>(pairs);
  const int64_t forced = SsdLossByGpu<TypeParam>(pairs).result.matched_anchors;
  for (auto& boxes : pairs.objects) {
    for (LabeledBox& box : boxes) box.weight = 0.0f;
  }
  CheckSsdCase<TypeParam>(pairs);
  EXPECT_LT(SsdLossByGpu<TypeParam>(pairs).result.matched_anchors, forced);
}

TYPED_TEST(SsdLossTest, BadNumbersShowInTheLoss) {
  for (const auto kind : {Classification::kSigmoid, Classification::kSoftmax}) {
    for (const double bad : {kNan, kInfinity, -kInfinity}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(kind) << ", " << bad);
      DetectionSpec spec = BaseSpec(3);
      spec.loss.classification = kind;
      spec.loss.hard_example_miner = Miner(20, 0.7f, 3, 1);  // at least one negative anchor
      SsdCase with_bad = RandomSsdCase(600, spec, 2, {50}, 3);
      with_bad.scores[4 * 31 + 2] = bad;
      CheckSsdCase<TypeParam>(with_bad);
      if (std::isnan(bad)) {
        EXPECT_TRUE(std::isnan(SsdLossByGpu<TypeParam>(with_bad).result.classification_loss));
      }
      SsdCase bad_codes = RandomSsdCase(601, spec, 2, {50}, 5);
      for (size_t i = 0; i < bad_codes.codes.size(); i += 7) bad_codes.codes[i] = bad;
      CheckSsdCase<TypeParam>(bad_codes);
    }
  }
}

// No anchor may be kept here, since min_negatives_per_image is 0 and nothing is matched.
TYPED_TEST(SsdLossTest, BadNumbersShowInImagesWithoutObjects) {
  for (const double bad : {kNan, kInfinity}) {
    DetectionSpec spec = BaseSpec(3);
    spec.loss.hard_example_miner = Miner(20, 0.7f, 3, 0);
    SsdCase with_bad = RandomSsdCase(602, spec, 2, {50}, 0);
    with_bad.scores[4 * 31 + 2] = bad;
    CheckSsdCase<TypeParam>(with_bad);
    const SsdLossResult result = SsdLossByGpu<TypeParam>(with_bad).result;
    EXPECT_FALSE(std::isfinite(result.classification_loss)) << bad;
    EXPECT_EQ(result.mined_negatives, 1) << bad;
  }
}

TYPED_TEST(SsdLossTest, WritesOnlyTheRequestedGradients) {
  DetectionSpec spec = BaseSpec(3);
  spec.loss.hard_example_miner = Miner(20, 0.7f, 3, 0);
  SsdCase partly = RandomSsdCase(700, spec, 2, {40, 30, 20}, 3);
  partly.head_without_gradient = 1;
  CheckSsdCase<TypeParam>(partly);
  partly.wants_gradient = false;
  CheckSsdCase<TypeParam>(partly);
}

// Draws all settings at random at the same time.
TYPED_TEST(SsdLossTest, MatchesTheCpuForRandomSettings) {
  CounterRandom random(77, sizeof(TypeParam));
  const auto& changes = Changes();
  for (int i = 0; i < 16; ++i) {
    DetectionSpec spec = BaseSpec(static_cast<int>(1 + random.NextBelow(6)));
    std::string names;
    for (int k = 0; k < 5; ++k) {
      const auto& [name, change] = changes[random.NextBelow(changes.size())];
      change(&spec);
      names += name + "; ";
    }
    SCOPED_TRACE(names);
    CheckSsdCase<TypeParam>(RandomSsdCase(1000 + i, spec,
                                          1 + static_cast<int64_t>(random.NextBelow(2)),
                                          {static_cast<int64_t>(1 + random.NextBelow(90)),
                                           static_cast<int64_t>(1 + random.NextBelow(50))},
                                          static_cast<int>(random.NextBelow(9))));
  }
}

TEST_F(SsdLossFixture, TooManyHeadsForAKernelArgumentIsAnError) {
  const DetectionSpec spec = BaseSpec(1);
  const std::vector<SsdHeadTensors<float>> heads(17);
  SsdLossArguments<float> arguments;
  arguments.spec = &spec;
  arguments.heads = heads;
  Queue queue;
  SsdLoss<float>(&queue, arguments, nullptr, nullptr);
  EXPECT_EQ(queue.error, cudaErrorInvalidValue);
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
