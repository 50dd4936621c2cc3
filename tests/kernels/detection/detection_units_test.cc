// Cases that the golden values do not cover: published counts, degenerate boxes, non-finite
// numbers.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/cpu_isa.h"
#include "common/base/random.h"
#include "kernels/detection/anchors.h"
#include "kernels/detection/box_coder.h"
#include "kernels/detection/detection_losses.h"
#include "kernels/detection/hard_example_miner.h"
#include "kernels/detection/loss_formulas.h"
#include "kernels/detection/non_max_suppression.h"
#include "kernels/detection/post_processing.h"
#include "kernels/detection/sigmoid_losses.h"
#include "kernels/detection/ssd_loss.h"
#include "tests/testkit/kernels/serial_loop.h"

namespace pushpull {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The detector for images of 300x300 pixels, with maps of 19, 10, 5, 3, 2 and 1.
DetectionSpec Ssd300() {
  DetectionSpec spec;
  spec.num_classes = 2;
  std::get<SsdAnchorSpec>(spec.anchors).aspect_ratios = {1.0f, 2.0f, 0.5f, 3.0f, 0.3333f};
  for (const int size : {19, 10, 5, 3, 2, 1}) {
    DetectionHead head;
    head.height = head.width = size;
    head.anchors_per_location = spec.heads.empty() ? 3 : 6;
    spec.heads.push_back(head);
  }
  return spec;
}

TEST(SsdAnchors, Ssd300Has1917Anchors) {
  const DetectionSpec spec = Ssd300();
  const std::vector<BoundingBox> anchors = GenerateAnchors(spec.anchors, spec.heads);
  EXPECT_EQ(anchors.size(), 1917u);
  EXPECT_EQ(spec.num_anchors(), 1917);
  // Scale 0.1 around the centre of the first location; the box reaches out of the image.
  EXPECT_NEAR(anchors[0].ymin, 0.5 / 19 - 0.05, 1e-6);
  EXPECT_NEAR(anchors[0].xmax, 0.5 / 19 + 0.05, 1e-6);
  EXPECT_LT(anchors[0].ymin, 0.0f);
  // The interpolated shape of the second map has the scale sqrt(0.35 * 0.5).
  EXPECT_NEAR(anchors[1083 + 5].height(), 0.4183, 1e-4);
  // The interpolated shape of the last map has the scale sqrt(0.95 * 1).
  EXPECT_NEAR(anchors.back().width(), 0.9747, 1e-4);
}

TEST(SsdAnchors, AcceptsGivenScalesAndNoInterpolatedShape) {
  SsdAnchorSpec spec;
  spec.num_layers = 2;
  spec.scales = {0.3f, 0.7f};
  spec.aspect_ratios = {1.0f};
  spec.reduce_boxes_in_lowest_layer = false;
  spec.interpolated_scale_aspect_ratio = 0.0f;
  const auto shapes = AnchorShapes(spec);
  ASSERT_EQ(shapes.size(), 2u);
  ASSERT_EQ(shapes[0].size(), 1u);
  EXPECT_FLOAT_EQ(shapes[0][0].scale, 0.3f);
  EXPECT_FLOAT_EQ(shapes[1][0].scale, 0.7f);
}

// Two maps of 2x3 and 1x2 cells, whose anchors are placed in pixels of an image of 100x200. A
// stride need not fit the map: 2 rows of 30 pixels do not fill 100.
TEST(SsdAnchors, HaveTheCentresThatStridesAndOffsetsGive) {
  SsdAnchorSpec spec;
  spec.num_layers = 2;
  spec.scales = {0.2f, 0.4f};
  spec.aspect_ratios = {1.0f};
  spec.reduce_boxes_in_lowest_layer = false;
  spec.interpolated_scale_aspect_ratio = 0.0f;
  spec.image_height = 100;
  spec.image_width = 200;
  std::vector<DetectionHead> heads(2);
  for (DetectionHead& head : heads) head.anchors_per_location = 1;
  heads[0].height = 2, heads[0].width = 3;
  heads[1].height = 1, heads[1].width = 2;
  // Returns the centres in pixels: y of the rows of the first map, x of its first row, then both
  // coordinates of the last anchor of the second map.
  const auto centres = [&] {
    const std::vector<BoundingBox> anchors = GenerateAnchors(spec, heads);
    CHECK_EQ(anchors.size(), 8u);
    const auto y = [&](int i) { return 50.0f * (anchors[i].ymin + anchors[i].ymax); };
    const auto x = [&](int i) { return 100.0f * (anchors[i].xmin + anchors[i].xmax); };
    for (const BoundingBox& anchor : anchors) {  // places do not change sizes
      const float scale = &anchor < &anchors[6] ? 0.2f : 0.4f;
      EXPECT_NEAR(anchor.height(), scale, 1e-6);
      EXPECT_NEAR(anchor.width(), scale, 1e-6);
    }
    return std::vector<float>{y(0), y(3), x(0), x(1), x(2), y(7), x(7)};
  };
  using testing::FloatNear;
  const auto are = [](std::initializer_list<float> pixels) {
    std::vector<testing::Matcher<float>> matchers;
    for (const float pixel : pixels) matchers.push_back(FloatNear(pixel, 1e-4f));
    return testing::ElementsAreArray(matchers);
  };
  EXPECT_THAT(centres(), are({25, 75, 33.3333f, 100, 166.6667f, 50, 150}));
  spec.height_stride = {30, 80};
  spec.width_stride = {50, 120};
  EXPECT_THAT(centres(), are({15, 45, 25, 75, 125, 40, 180}));  // half a stride, and full ones
  spec.height_offset = {0, 7};
  spec.width_offset = {10, 90};
  EXPECT_THAT(centres(), are({0, 30, 10, 60, 110, 7, 210}));
  spec.height_stride.clear();  // the maps divide the image again, from the offset on
  spec.width_stride.clear();
  EXPECT_THAT(centres(), are({0, 50, 10, 76.6667f, 143.3333f, 7, 190}));
}

TEST(MultiscaleAnchors, AreMultiplesOfTheStride) {
  MultiscaleAnchorSpec spec;
  spec.min_level = 3;
  spec.max_level = 4;
  spec.aspect_ratios = {1.0f, 4.0f};
  spec.image_height = 40;  // a multiple of 8, not of 16
  spec.image_width = 64;
  std::vector<DetectionHead> heads(2);
  for (DetectionHead& head : heads) head.anchors_per_location = 4;
  heads[0].height = 5, heads[0].width = 8;
  heads[1].height = 3, heads[1].width = 4;
  const std::vector<BoundingBox> anchors = GenerateAnchors(spec, heads);
  ASSERT_EQ(anchors.size(), 4u * (5 * 8 + 3 * 4));
  // Level 3, row 0, column 0, ratio 1: sides of 32 and 32 * sqrt(2) pixels around (4, 4).
  EXPECT_FLOAT_EQ(anchors[0].ymin, (4.0f - 16.0f) / 40.0f);
  EXPECT_FLOAT_EQ(anchors[0].xmax, (4.0f + 16.0f) / 64.0f);
  EXPECT_FLOAT_EQ(anchors[1].height(), 32.0f * std::sqrt(2.0f) / 40.0f);
  // Ratio 4: twice as wide as a square anchor of the same area.
  EXPECT_FLOAT_EQ(anchors[2].height(), 16.0f / 40.0f);
  EXPECT_FLOAT_EQ(anchors[2].width(), 64.0f / 64.0f);
  // Level 4, row 0, column 1: the stride divides the width only, so rows have no offset.
  const BoundingBox& second = anchors[4 * 5 * 8 + 4];
  EXPECT_FLOAT_EQ(0.5f * (second.ymin + second.ymax), 0.0f);
  EXPECT_FLOAT_EQ(0.5f * (second.xmin + second.xmax), 24.0f / 64.0f);
  EXPECT_FLOAT_EQ(second.width(), 1.0f);
}

TEST(BoxCoder, DecodingUndoesEncoding) {
  const FasterRcnnBoxCoderSpec spec;
  const BoundingBox anchor{0.1f, 0.2f, 0.5f, 0.9f};
  const BoundingBox box{0.15f, 0.1f, 0.4f, 0.95f};
  const BoundingBox back = DecodeBox(spec, EncodeBox(spec, box, anchor), anchor);
  EXPECT_NEAR(back.ymin, box.ymin, 1e-6);
  EXPECT_NEAR(back.xmin, box.xmin, 1e-6);
  EXPECT_NEAR(back.ymax, box.ymax, 1e-6);
  EXPECT_NEAR(back.xmax, box.xmax, 1e-6);
}

TEST(BoxCoder, ABoxWithoutAreaHasAFiniteCode) {
  const BoxCode code = EncodeBox({}, {0.5f, 0.5f, 0.5f, 0.5f}, {0.0f, 0.0f, 1.0f, 1.0f});
  for (const double value : code) EXPECT_TRUE(std::isfinite(value));
}

TEST(MatchAnchors, TiesGoToTheFirst) {
  ArgMaxMatcherSpec spec;
  spec.force_match_for_each_row = true;
  const std::vector<BoundingBox> anchors = {{0, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 0.1f, 0.1f}};
  const std::vector<LabeledBox> boxes = {{{0, 0, 1, 1}, 0, 1.0f}, {{0, 0, 1, 1}, 1, 1.0f}};
  EXPECT_EQ(MatchAnchors(spec, anchors, boxes), (std::vector<int>{0, 0, kUnmatched}));
}

TEST(MatchAnchors, AForcedMatchMayTakeAnAnchorWithoutOverlap) {
  ArgMaxMatcherSpec spec;
  spec.force_match_for_each_row = true;
  const std::vector<BoundingBox> anchors = {{0, 0, 0.1f, 0.1f}, {0.2f, 0.2f, 0.3f, 0.3f}};
  const std::vector<LabeledBox> boxes = {{{0.9f, 0.9f, 1, 1}, 0, 1.0f}};
  EXPECT_EQ(MatchAnchors(spec, anchors, boxes), (std::vector<int>{0, kUnmatched}));
}

// A box of weight 0 marks a place that the losses ignore. The real box after it in the list has
// the same best anchor and takes it. By threshold a box of weight 0 is matched like any other.
TEST(MatchAnchors, ABoxOfWeightZeroForcesNoMatch) {
  ArgMaxMatcherSpec spec;
  spec.force_match_for_each_row = true;
  const std::vector<BoundingBox> anchors = {
      {0, 0, 0.4f, 0.4f}, {0.5f, 0.5f, 1, 1}, {0.9f, 0, 1, 0.1f}};
  const LabeledBox real{{0, 0, 0.2f, 0.2f}, 0, 0.5f};
  const LabeledBox ignored{{0, 0, 0.25f, 0.25f}, 1, 0.0f};
  const LabeledBox matched{{0.5f, 0.5f, 1, 1}, 2, 0.0f};
  EXPECT_EQ(MatchAnchors(spec, anchors, {ignored, real, matched}),
            (std::vector<int>{1, 2, kUnmatched}));
  EXPECT_EQ(MatchAnchors(spec, anchors, {real, ignored, matched}),
            (std::vector<int>{0, 2, kUnmatched}));
  EXPECT_EQ(MatchAnchors(spec, anchors, {ignored}), (std::vector<int>(3, kUnmatched)));
}

TEST(MatchAnchors, WithoutBoxesAllAnchorsAreBackground) {
  ArgMaxMatcherSpec spec;
  spec.force_match_for_each_row = true;
  for (const bool ignore_thresholds : {false, true}) {
    spec.ignore_thresholds = ignore_thresholds;
    EXPECT_EQ(MatchAnchors(spec, std::vector<BoundingBox>(2, {0, 0, 1, 1}), {}),
              (std::vector<int>{kUnmatched, kUnmatched}));
  }
}

// The IoUs with the box are exactly 1/2 and 1/4, and so are the thresholds.
TEST(MatchAnchors, HandlesIousThatEqualAThreshold) {
  const std::vector<BoundingBox> anchors = {{0, 0, 1, 0.5f}, {0, 0, 0.5f, 0.5f}};
  const std::vector<LabeledBox> boxes = {{{0, 0, 1, 1}, 0, 1.0f}};
  ASSERT_EQ(IntersectionOverUnion(boxes[0].box, anchors[0]), 0.5f);
  ASSERT_EQ(IntersectionOverUnion(boxes[0].box, anchors[1]), 0.25f);
  const float above_half = std::nextafter(0.5f, 1.0f), above_quarter = std::nextafter(0.25f, 1.0f);
  struct Case {
    float matched, unmatched;
    bool negatives_lower;
    std::vector<int> expected;
  };
  for (const Case& c : std::vector<Case>{
           // An IoU that equals the upper threshold is a match.
           {0.5f, 0.25f, true, {0, kIgnored}},
           {above_half, 0.25f, true, {kIgnored, kIgnored}},
           {0.25f, 0.25f, true, {0, 0}},
           // An IoU that equals the lower threshold is not below it.
           {0.5f, above_quarter, true, {0, kUnmatched}},
           {above_half, 0.5f, true, {kIgnored, kUnmatched}},
           {above_half, above_half, true, {kUnmatched, kUnmatched}},
           // With this setting, the anchors between the thresholds and those below the lower one
           // change their roles.
           {0.5f, 0.25f, false, {0, kUnmatched}},
           {0.5f, above_quarter, false, {0, kIgnored}},
           {above_half, 0.5f, false, {kUnmatched, kIgnored}},
       }) {
    ArgMaxMatcherSpec spec;
    spec.matched_threshold = c.matched;
    spec.unmatched_threshold = c.unmatched;
    spec.negatives_lower_than_unmatched = c.negatives_lower;
    EXPECT_EQ(MatchAnchors(spec, anchors, boxes), c.expected)
        << c.matched << ", " << c.unmatched << ", " << c.negatives_lower;
  }
}

TEST(SuppressNonMaxima, KeepsTheBestOfOverlappingBoxes) {
  const std::vector<BoundingBox> boxes = {
      {0, 0, 1, 1}, {0, 0, 1, 0.9f}, {0, 0, 0.2f, 0.2f}, {0, 0, 1, 1}};
  const std::vector<float> scores = {0.5f, 0.9f, 0.1f, kNan};
  SuppressionOptions options;
  options.iou_threshold = 0.5f;
  EXPECT_EQ(SuppressNonMaxima(boxes, scores, options), (std::vector<int>{1, 2}));
  options.score_threshold = 0.1f;  // a box needs a higher score
  EXPECT_EQ(SuppressNonMaxima(boxes, scores, options), (std::vector<int>{1}));
  options.score_threshold = -kInfinity;
  options.max_boxes = 0;
  EXPECT_TRUE(SuppressNonMaxima(boxes, scores, options).empty());
  EXPECT_TRUE(SuppressNonMaxima({}, {}, {}).empty());
}

// Compares every pair of boxes, as the definition of suppression says.
std::vector<int> SuppressByDefinition(const std::vector<BoundingBox>& boxes, float iou_threshold) {
  std::vector<int> kept;
  for (int i = 0; i < static_cast<int>(boxes.size()); ++i) {  // the scores are descending
    const bool suppressed = std::any_of(kept.begin(), kept.end(), [&](int k) {
      return IntersectionOverUnion(boxes[i], boxes[k]) > iou_threshold;
    });
    if (!suppressed) kept.push_back(i);
  }
  return kept;
}

TEST(SuppressNonMaxima, FollowsItsDefinitionForAnyBoxesAndThreshold) {
  CounterRandom random(5, 1);
  for (const float threshold : {0.0f, 0.03f, 0.06f, 0.3f, 0.6f, 0.9f, 0.99f, 1.0f}) {
    std::vector<BoundingBox> boxes = {{0.1f, 0.1f, 0.1f, 0.9f},  // no area
                                      {0.5f, 0.5f, 0.2f, 0.2f},  // negative height and width
                                      {0.0f, 0.0f, kNan, 1.0f},  //
                                      {0.0f, 0.0f, kInfinity, 1.0f}};
    for (int i = 0; i < 400; ++i) {
      if (i % 3 != 0) {  // close to an earlier box
        const BoundingBox& near = boxes[random.NextBelow(boxes.size())];
        const float shift = 0.1f / static_cast<float>(1 + random.NextBelow(100));
        boxes.push_back({near.ymin + shift, near.xmin, near.ymax, near.xmax + shift});
        continue;
      }
      const float y = random.NextFloat(), x = random.NextFloat(), side = 0.5f * random.NextFloat();
      boxes.push_back({y, x, y + side, x + side * (0.5f + random.NextFloat())});
    }
    std::vector<float> scores;
    for (size_t i = 0; i < boxes.size(); ++i) scores.push_back(-static_cast<float>(i));
    SuppressionOptions options;
    options.iou_threshold = threshold;
    options.max_boxes = 1000;
    const std::vector<int> kept = SuppressNonMaxima(boxes, scores, options);
    EXPECT_EQ(kept, SuppressByDefinition(boxes, threshold)) << threshold;
    if (threshold < 1.0f) {
      EXPECT_LT(kept.size(), boxes.size()) << threshold;
    }
  }
}

TEST(SuppressNonMaxima, KeepsTheOrderOfEqualScores) {
  std::vector<BoundingBox> boxes;
  std::vector<float> scores;
  std::vector<int> expected;
  for (int i = 0; i < 40; ++i) {
    const float y = static_cast<float>(i);
    boxes.push_back({y, 0, y + 1, 1});  // no two overlap
    scores.push_back(i % 2 == 0 ? 0.25f : 0.5f);
  }
  for (int i = 1; i < 40; i += 2) expected.push_back(i);
  for (int i = 0; i < 10; i += 2) expected.push_back(i);
  SuppressionOptions options;
  options.max_boxes = 25;
  EXPECT_EQ(SuppressNonMaxima(boxes, scores, options), expected);
}

TEST(SuppressNonMaxima, KeepsABoxWhoseIouEqualsTheThreshold) {
  const std::vector<BoundingBox> boxes = {{0, 0, 1, 1}, {0, 0, 1, 0.5f}};
  SuppressionOptions options;
  options.iou_threshold = 0.5f;
  EXPECT_EQ(SuppressNonMaxima(boxes, std::vector<float>{2, 1}, options).size(), 2u);
  options.iou_threshold = 0.499f;
  EXPECT_EQ(SuppressNonMaxima(boxes, std::vector<float>{2, 1}, options).size(), 1u);
}

// Central differences, also for large scores, where exponentials would overflow.
TEST(DetectionLosses, GradientsMatchCentralDifferences) {
  for (const auto kind :
       {DetectionLossSpec::Classification::kSigmoid, DetectionLossSpec::Classification::kSoftmax,
        DetectionLossSpec::Classification::kSigmoidFocal}) {
    DetectionLossSpec spec;
    spec.classification = kind;
    spec.logit_scale = 1.5f;
    spec.focal_alpha = 0.25f;
    const std::vector<double> scores = {-40.0, 0.3, 2.0, 35.0};
    for (int column = -1; column < 4; ++column) {
      double gradient[4];
      ClassificationGradient<double>(spec, scores, column, 2.0, gradient);
      for (int i = 0; i < 4; ++i) {
        constexpr double kStep = 1e-5;
        std::vector<double> up = scores, down = scores;
        up[i] += kStep;
        down[i] -= kStep;
        const double slope = (ClassificationLoss<double>(spec, up, column) -
                              ClassificationLoss<double>(spec, down, column)) /
                             (2 * kStep);
        EXPECT_NEAR(gradient[i], 2.0 * slope, 1e-6)
            << "kind " << static_cast<int>(kind) << " column " << column << " score " << i;
      }
    }
  }
}

// Computes the losses or the slopes of the scores. Against the formula for one score, where s is
// the score of a target, and with each instruction set. Those with fused multiply-adds must give
// the same bits.
void ExpectFormulaOfManyScores(decltype(SigmoidLosses)* compute,
                               double (*formula)(const LossFormula&, double, bool), double gamma) {
  LossFormula one_score = {};
  one_score.classification = DetectionLossSpec::Classification::kSigmoidFocal;
  one_score.focal_gamma = gamma;
  one_score.focal_positive_weight = 1.0;
  std::vector<double> scores = {0.0,   -0.0,  1e-300, -1e-300, 1e-9, -1e-9, 36.0,
                                -36.0, 709.0, -709.0, 1e6,     -1e6, 1.0};
  CounterRandom random(5, 1);
  while (scores.size() < 1000) scores.push_back(10 * random.NextNormal());
  // The error of a power grows with its logarithm.
  const auto tolerance = [&](size_t i, double result) {
    return 1e-14 * (1.0 + gamma * std::min(std::abs(scores[i]), 1e3)) * std::abs(result);
  };
  std::vector<double> best(scores.size());
  compute(gamma, scores.data(), scores.size(), best.data());
  for (size_t i = 0; i < scores.size(); ++i) {
    const double expected = formula(one_score, scores[i], true);
    // A power so small that it is denormal has fewer digits.
    EXPECT_NEAR(best[i], expected, tolerance(i, expected) + (gamma > 0.0 ? 1e-300 : 0.0))
        << "s " << scores[i] << ", gamma " << gamma;
  }
  for (const CpuIsa isa : AvailableCpuIsas()) {
    UseCpuIsa(isa);
    std::vector<double> results = scores;
    // Not in whole vectors, and in place.
    compute(gamma, results.data(), 7, results.data());
    compute(gamma, results.data() + 7, results.size() - 7, results.data() + 7);
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_NEAR(results[i], best[i], HasFusedMultiplyAdd(isa) ? 0.0 : tolerance(i, best[i]))
          << "s " << scores[i] << ", gamma " << gamma << " with " << CpuIsaName(isa);
    }
  }
  UseCpuIsa(AvailableCpuIsas().back());
  double result = kNan;
  compute(gamma, &result, 1, &result);
  EXPECT_TRUE(std::isnan(result));
}

TEST(DetectionLosses, SigmoidLossesOfManyScoresFollowTheFormula) {
  for (const double gamma : {0.0, 0.5, 2.0, 3.0}) {
    ExpectFormulaOfManyScores(SigmoidLosses, ScoreLoss, gamma);
  }
}

TEST(DetectionLosses, SigmoidSlopesOfManyScoresFollowTheFormula) {
  for (const double gamma : {0.0, 0.5, 2.0, 3.0}) {
    ExpectFormulaOfManyScores(SigmoidSlopes, ScoreSlope, gamma);
  }
}

// The detector for images of 300x300 pixels with its matching and mining.
DetectionSpec Ssd300WithLoss() {
  DetectionSpec spec = Ssd300();
  spec.loss.hard_example_miner.emplace().max_negatives_per_positive = 3;
  spec.matcher.force_match_for_each_row = true;
  return spec;
}

// Returns the loss of one image for given scores and box codes of 0.
SsdLossResult LossOfImage(const DetectionSpec& spec, const std::vector<LabeledBox>& boxes,
                          const std::vector<float>& scores) {
  const std::vector<BoundingBox> anchors = GenerateAnchors(spec.anchors, spec.heads);
  const std::vector<int32_t> first_object = {0, static_cast<int32_t>(boxes.size())};
  const std::vector<float> codes(anchors.size() * 4, 0.0f);
  SsdLossArguments<float> arguments;
  arguments.spec = &spec;
  arguments.samples = 1;
  arguments.num_anchors = static_cast<int64_t>(anchors.size());
  arguments.anchors = anchors.data();
  arguments.objects = boxes.data();
  arguments.first_object = first_object.data();
  const SsdHeadTensors<float> head{arguments.num_anchors, codes.data(), scores.data(), nullptr,
                                   nullptr};
  arguments.heads = {&head, 1};
  return SsdLossOnCpu<float>(arguments, SerialLoop);
}

TEST(SsdLoss, NanInTheOutputsShowsInTheLoss) {
  const DetectionSpec spec = Ssd300WithLoss();
  std::vector<float> scores(spec.num_anchors() * 3, 0.0f);
  scores[1000 * 3 + 1] = kNan;
  const SsdLossResult result = LossOfImage(spec, {{{0.2f, 0.2f, 0.6f, 0.6f}, 1, 1.0f}}, scores);
  EXPECT_TRUE(std::isnan(result.classification_loss));
  EXPECT_GT(result.matched_anchors, 0);
}

// No anchor may be kept here, since min_negatives_per_image is 0.
TEST(SsdLoss, NanInTheOutputsShowsInAnImageWithoutObjects) {
  const DetectionSpec spec = Ssd300WithLoss();
  std::vector<float> scores(spec.num_anchors() * 3, 0.0f);
  EXPECT_EQ(LossOfImage(spec, {}, scores).mined_negatives, 0);
  scores[1000 * 3 + 1] = kNan;
  const SsdLossResult result = LossOfImage(spec, {}, scores);
  EXPECT_TRUE(std::isnan(result.classification_loss));
  EXPECT_EQ(result.mined_negatives, 1);
}

TEST(SsdLoss, TheLossWithoutObjectsIsThatOfTheBackground) {
  DetectionSpec spec = Ssd300WithLoss();
  spec.loss.hard_example_miner->min_negatives_per_image = 5;
  const SsdLossResult result =
      LossOfImage(spec, {}, std::vector<float>(spec.num_anchors() * 3, 0.0f));
  EXPECT_EQ(result.matched_anchors, 0);
  EXPECT_EQ(result.mined_negatives, 5);
  EXPECT_EQ(result.localization_loss, 0.0);
  EXPECT_GT(result.classification_loss, 0.0);
  EXPECT_LT(result.classification_loss, 100.0);
}

TEST(PostProcess, HandlesNoDetectionsAndNonFiniteNumbers) {
  DetectionSpec spec = Ssd300();
  spec.post_processing.score_converter = PostProcessingSpec::ScoreConverter::kSigmoid;
  spec.post_processing.score_threshold = 0.5f;
  const std::vector<BoundingBox> anchors = GenerateAnchors(spec.anchors, spec.heads);
  std::vector<float> codes(anchors.size() * 4, 0.0f);
  std::vector<float> scores(anchors.size() * 3, -9.0f);
  EXPECT_TRUE(PostProcess(spec, anchors, codes, scores).empty());
  scores[500 * 3 + 1] = kNan;
  scores[501 * 3 + 1] = 9.0f;
  codes[501 * 4 + 2] = 1e6f;  // a height that overflows
  scores[502 * 3 + 1] = 8.0f;
  const std::vector<Detection> detections = PostProcess(spec, anchors, codes, scores);
  ASSERT_EQ(detections.size(), 1u);
  EXPECT_EQ(detections[0].label, 0);
  EXPECT_NEAR(detections[0].score, 1.0 / (1.0 + std::exp(-8.0)), 1e-6);
}

// Three anchors in the same place: each class keeps its best anchor, whichever anchors other
// classes keep.
TEST(PostProcess, AClassDoesNotSuppressOtherClasses) {
  DetectionSpec spec = Ssd300();
  spec.post_processing.score_converter = PostProcessingSpec::ScoreConverter::kIdentity;
  spec.post_processing.score_threshold = 0.05f;
  const std::vector<BoundingBox> anchors(3, {0.1f, 0.1f, 0.5f, 0.5f});
  const std::vector<float> codes(anchors.size() * 4, 0.0f);
  const std::vector<float> scores = {0, 0.9f, 0.2f,  // background, class 0, class 1
                                     0, 0.3f, 0.8f,  //
                                     0, 0.1f, 0.1f};
  const std::vector<Detection> detections = PostProcess(spec, anchors, codes, scores);
  ASSERT_EQ(detections.size(), 2u);
  EXPECT_EQ(detections[0].label, 0);
  EXPECT_FLOAT_EQ(detections[0].score, 0.9f);
  EXPECT_EQ(detections[1].label, 1);
  EXPECT_FLOAT_EQ(detections[1].score, 0.8f);
  // One anchor may be the best of both classes.
  const std::vector<float> both = {0, 0.9f, 0.7f, 0, 0.3f, 0.6f, 0, 0.1f, 0.1f};
  const std::vector<Detection> twice = PostProcess(spec, anchors, codes, both);
  ASSERT_EQ(twice.size(), 2u);
  EXPECT_FLOAT_EQ(twice[0].score, 0.9f);
  EXPECT_FLOAT_EQ(twice[1].score, 0.7f);
}

TEST(PostProcess, LimitsDetectionsPerClassAndInTotal) {
  DetectionSpec spec = Ssd300();
  spec.post_processing.score_converter = PostProcessingSpec::ScoreConverter::kIdentity;
  spec.post_processing.score_threshold = 0.05f;
  spec.post_processing.max_detections_per_class = 2;
  std::vector<BoundingBox> anchors;
  std::vector<float> scores;
  for (int i = 0; i < 4; ++i) {  // far from each other
    const float x = 0.25f * static_cast<float>(i);
    anchors.push_back({0.1f, x, 0.2f, x + 0.2f});
    scores.insert(scores.end(), {0, 0.9f - 0.1f * i, 0.5f - 0.1f * i});
  }
  const std::vector<float> codes(anchors.size() * 4, 0.0f);
  EXPECT_EQ(PostProcess(spec, anchors, codes, scores).size(), 4u);
  spec.post_processing.max_total_detections = 3;
  const std::vector<Detection> detections = PostProcess(spec, anchors, codes, scores);
  ASSERT_EQ(detections.size(), 3u);
  EXPECT_EQ(detections[1].label, 0);
  EXPECT_EQ(detections[2].label, 1);
  EXPECT_FLOAT_EQ(detections[2].score, 0.5f);
}

TEST(PostProcess, ClipsToTheWindowAndReturnsFractionsOfIt) {
  DetectionSpec spec = Ssd300();
  spec.post_processing.score_converter = PostProcessingSpec::ScoreConverter::kIdentity;
  spec.post_processing.score_threshold = 0.5f;
  const std::vector<BoundingBox> anchors = {
      {0.1f, 0.1f, 0.3f, 0.2f}, {0.4f, 0.2f, 0.6f, 0.9f}, {0.6f, 0.0f, 0.9f, 0.4f}};
  const std::vector<float> codes(anchors.size() * 4, 0.0f);
  std::vector<float> scores(anchors.size() * 3, 0.0f);
  for (size_t a = 0; a < anchors.size(); ++a) scores[a * 3 + 1] = 0.9f - 0.1f * a;
  const std::vector<Detection> detections =
      PostProcess(spec, anchors, codes, scores, {0.0f, 0.0f, 0.5f, 0.8f});
  ASSERT_EQ(detections.size(), 2u) << "the third box lies in the padding";
  EXPECT_NEAR(detections[0].box.ymin, 0.2, 1e-6);
  EXPECT_NEAR(detections[0].box.xmin, 0.125, 1e-6);
  EXPECT_NEAR(detections[0].box.ymax, 0.6, 1e-6);
  EXPECT_NEAR(detections[0].box.xmax, 0.25, 1e-6);
  EXPECT_NEAR(detections[1].box.ymin, 0.8, 1e-6);
  EXPECT_EQ(detections[1].box.ymax, 1.0f);
  EXPECT_EQ(detections[1].box.xmax, 1.0f);
}

}  // namespace
}  // namespace pushpull
