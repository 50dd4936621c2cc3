#include "common/model/families/mobiledet.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/variable_layout.h"
#include "tests/common/model/families/family_testing.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

constexpr MobiledetVariant kVariants[] = {MobiledetVariant::kCpu, MobiledetVariant::kDsp,
                                          MobiledetVariant::kEdgeTpu, MobiledetVariant::kGpu};

struct Body {
  NetworkSpec network;
  MobiledetEndpoints endpoints;

  std::vector<FeatureShape> shapes() const {
    std::vector<FeatureShape> result;
    for (const int node : {endpoints.c1, endpoints.c2, endpoints.c3, endpoints.c4, endpoints.c5}) {
      result.push_back(network.nodes[node].shape);
    }
    return result;
  }
};

Body Build(const MobiledetOptions& options, FeatureShape image = {320, 320, 3}) {
  NetworkBuilder builder("MobileDet", image, /*freeze_batch_norm=*/false);
  Body body;
  body.endpoints =
      AddMobiledetBody("MobileDet", options, MobiledetScope(/*keras=*/false), &builder);
  EXPECT_EQ(body.endpoints.c5, static_cast<int>(builder.network().nodes.size()) - 1);
  body.network = FinishBody(std::move(builder), body.endpoints.c5);
  return body;
}

int64_t CountParameters(MobiledetVariant variant, double multiplier) {
  return CountParameters(Build({variant, multiplier}).network);
}

// The numbers of the networks in tests/reference/backbones_torch.py.
TEST(MobiledetTest, HasTheParametersOfTheReference) {
  EXPECT_EQ(CountParameters(MobiledetVariant::kCpu, 1.0), 3006440);
  EXPECT_EQ(CountParameters(MobiledetVariant::kDsp, 1.0), 5839952);
  EXPECT_EQ(CountParameters(MobiledetVariant::kEdgeTpu, 1.0), 2777040);
  EXPECT_EQ(CountParameters(MobiledetVariant::kGpu, 1.0), 11689920);
  EXPECT_EQ(CountParameters(MobiledetVariant::kCpu, 0.5), 930224);
  EXPECT_EQ(CountParameters(MobiledetVariant::kDsp, 0.5), 1561952);
  EXPECT_EQ(CountParameters(MobiledetVariant::kEdgeTpu, 0.5), 830016);
  EXPECT_EQ(CountParameters(MobiledetVariant::kGpu, 0.5), 2934432);
}

// The elements of an SSDLite head for 90 classes, with the moving statistics, above maps of these
// depths: four more maps, and two predictors for each map.
int64_t CountHeadElements(int c4, int c5) {
  const auto normalized = [](int64_t weights, int channels) { return weights + 4 * channels; };
  std::vector<int> depths = {c4, c5};
  int64_t count = 0;
  for (const int depth : {512, 256, 256, 128}) {
    const int half = depth / 2;
    count += normalized(depths.back() * half, half) + normalized(9 * half, half) +
             normalized(half * depth, depth);
    depths.push_back(depth);
  }
  for (size_t i = 0; i < depths.size(); ++i) {
    const int anchors = i == 0 ? 3 : 6;
    for (const int outputs : {4 * anchors, 91 * anchors}) {
      count += normalized(9 * depths[i], depths[i]) + (depths[i] + 1) * outputs;
    }
  }
  return count;
}

// The numbers in TensorFlow's sample configs, in units of 10,000.
TEST(MobiledetTest, DetectorsHaveThePublishedNumberOfParameters) {
  const int64_t published[] = {421, 716, 420, 1311};
  for (size_t v = 0; v < std::size(kVariants); ++v) {
    const Body body = Build({kVariants[v]});
    const std::vector<FeatureShape> shapes = body.shapes();
    const int64_t count =
        CountHeadElements(shapes[3].channels, shapes[4].channels) + CountElements(body.network);
    EXPECT_EQ((count + 5000) / 10000, published[v]) << count;
  }
}

// The depths that TensorFlow's own test of its Keras backbones expects.
TEST(MobiledetTest, EndpointsHaveTheStridesAndDepthsOfTensorFlow) {
  const std::vector<int> depths[] = {
      {8, 16, 32, 72, 144}, {24, 32, 64, 144, 240}, {16, 16, 40, 96, 384}, {16, 32, 64, 128, 384}};
  for (size_t v = 0; v < std::size(kVariants); ++v) {
    const std::vector<FeatureShape> shapes = Build({kVariants[v]}).shapes();
    for (size_t i = 0; i < shapes.size(); ++i) {
      const int side = 320 >> (i + 1);
      EXPECT_EQ(shapes[i], (FeatureShape{side, side, depths[v][i]})) << v << " C" << i + 1;
    }
  }
}

TEST(MobiledetTest, SizesThatAreOddRoundUp) {
  const std::vector<FeatureShape> shapes = Build({MobiledetVariant::kCpu}, {299, 100, 3}).shapes();
  EXPECT_EQ(shapes[3], (FeatureShape{19, 7, 72}));
  EXPECT_EQ(shapes[4], (FeatureShape{10, 4, 144}));
}

std::vector<int64_t> ShapeOf(const Body& body, const std::string& name) {
  return ShapeOf(body.network, "MobileDet/" + name);
}

TEST(MobiledetTest, VariablesOfTheCpuVariantCarryTensorFlowsNames) {
  const Body body = Build({MobiledetVariant::kCpu});
  const auto shape = [&](const std::string& name) { return ShapeOf(body, name); };
  EXPECT_THAT(shape("Conv/weights"), ElementsAre(3, 3, 3, 16));
  EXPECT_THAT(shape("IBNNoExpansion/SeparableConv2d/depthwise_weights"), ElementsAre(3, 3, 16, 1));
  EXPECT_THAT(shape("IBNNoExpansion/SqueezeExcite/Conv/weights"), ElementsAre(1, 1, 16, 8));
  EXPECT_THAT(shape("IBNNoExpansion/Conv/weights"), ElementsAre(1, 1, 16, 8));
  EXPECT_THAT(shape("IBN/Conv/weights"), ElementsAre(1, 1, 8, 32));
  EXPECT_THAT(shape("IBN_5/SeparableConv2d/depthwise_weights"), ElementsAre(5, 5, 256, 1));
  EXPECT_THAT(shape("IBN_5/SqueezeExcite/Conv_1/biases"), ElementsAre(256));
  EXPECT_THAT(shape("IBN_5/Conv_1/BatchNorm/gamma"), ElementsAre(72));
  EXPECT_THAT(shape("IBN_17/Conv/weights"), ElementsAre(1, 1, 104, 832));
  EXPECT_THAT(shape("IBN_17/Conv_1/weights"), ElementsAre(1, 1, 832, 144));
  EXPECT_THAT(shape("IBN_18/Conv/weights"), ElementsAre());
}

TEST(MobiledetTest, FusedAndTuckerBlocksCarryTensorFlowsNames) {
  const Body dsp = Build({MobiledetVariant::kDsp});
  EXPECT_THAT(ShapeOf(dsp, "FusedConv/Conv/weights"), ElementsAre(3, 3, 24, 96));
  EXPECT_THAT(ShapeOf(dsp, "FusedConv/Conv_1/weights"), ElementsAre(1, 1, 96, 32));
  EXPECT_THAT(ShapeOf(dsp, "TuckerConv/Conv/weights"), ElementsAre(1, 1, 32, 8));
  EXPECT_THAT(ShapeOf(dsp, "TuckerConv/Conv_1/weights"), ElementsAre(3, 3, 8, 24));
  EXPECT_THAT(ShapeOf(dsp, "TuckerConv/Conv_2/weights"), ElementsAre(1, 1, 24, 32));
  EXPECT_THAT(ShapeOf(dsp, "TuckerConv_1/Conv_1/weights"), ElementsAre(3, 3, 120, 120));
  EXPECT_THAT(ShapeOf(dsp, "TuckerConv_2/Conv/weights"), ElementsAre());
  const Body edge_tpu = Build({MobiledetVariant::kEdgeTpu});
  EXPECT_THAT(ShapeOf(edge_tpu, "FusedConv_4/Conv/weights"), ElementsAre(5, 5, 16, 128));
}

TEST(MobiledetTest, OnlyTheCpuVariantHasHardSwishAndSqueezes) {
  // One after the first convolution, two or three per block, one of them in the squeeze.
  const Body cpu = Build({MobiledetVariant::kCpu});
  EXPECT_EQ(CountActivations(cpu.network, ActivationFunction::kHardSwish), 1 + 2 + 18 * 3);
  EXPECT_EQ(CountActivations(cpu.network, ActivationFunction::kSigmoid), 19);
  EXPECT_EQ(CountActivations(cpu.network, ActivationFunction::kRelu6), 0);
  const Body dsp = Build({MobiledetVariant::kDsp});
  EXPECT_EQ(CountActivations(dsp.network, ActivationFunction::kHardSwish), 0);
  EXPECT_EQ(CountActivations(dsp.network, ActivationFunction::kSigmoid), 0);
  // Without expansion, fused, inverted bottleneck, Tucker.
  EXPECT_EQ(CountActivations(dsp.network, ActivationFunction::kRelu6), 1 + 1 + 8 + 11 * 2 + 2 * 2);
}

// MakeDivisible would give 16 channels for a quarter of 40.
TEST(MobiledetTest, DepthsRoundToTheNearestMultipleOfEight) {
  const Body body = Build({MobiledetVariant::kDsp, 1.25});
  EXPECT_THAT(ShapeOf(body, "Conv/weights"), ElementsAre(3, 3, 3, 40));
  EXPECT_THAT(ShapeOf(body, "TuckerConv/Conv/weights"), ElementsAre(1, 1, 40, 8));
  EXPECT_THAT(ShapeOf(body, "TuckerConv/Conv_2/weights"), ElementsAre(1, 1, 32, 40));
  const Body narrow = Build({MobiledetVariant::kCpu, 0.25});
  EXPECT_THAT(ShapeOf(narrow, "IBNNoExpansion/Conv/weights"), ElementsAre(1, 1, 8, 8));
  EXPECT_THAT(ShapeOf(narrow, "IBN_5/Conv_1/weights"), ElementsAre(1, 1, 64, 16));
}

TEST(MobiledetTest, VariablesHaveHesInitializersAndL2Weights) {
  const Body body = Build({MobiledetVariant::kCpu});
  const VariableLayout layout = *VariableLayout::Create(body.network.variables);
  const auto expect = [&](const std::string& name, int fan_in) {
    const VariableSpec& variable = layout.variables()[*layout.Find("MobileDet/" + name)];
    EXPECT_EQ(variable.initializer.kind, Initializer::Kind::kTruncatedNormal) << name;
    const double deviation = std::sqrt(2.0 / fan_in) / 0.87962566103423978;
    EXPECT_NEAR(variable.initializer.stddev, deviation, 1e-6 * deviation) << name;
    EXPECT_FLOAT_EQ(variable.l2_weight, 4e-5f) << name;
  };
  expect("Conv/weights", 3 * 3 * 3);
  expect("IBN/Conv/weights", 8);
  expect("IBN/SeparableConv2d/depthwise_weights", 3 * 3);
  expect("IBN_5/SeparableConv2d/depthwise_weights", 5 * 5);
  expect("IBN/SqueezeExcite/Conv_1/weights", 8);
  ForEachBatchNorm(body.network, [](const op::BatchNorm& norm) {
    EXPECT_FLOAT_EQ(norm.decay, 0.99f);
    EXPECT_FLOAT_EQ(norm.epsilon, 0.01f);
  });
}

TEST(MobiledetTest, OtherInitializersAreUsedAsTheyAre) {
  NetworkBuilder builder("MobileDet", {64, 64, 3}, /*freeze_batch_norm=*/false);
  AddMobiledetBody("MobileDet", {MobiledetVariant::kGpu}, SlimHyperparams(), &builder);
  for (const VariableSpec& variable : builder.network().variables) {
    if (variable.initializer.kind != Initializer::Kind::kTruncatedNormal) continue;
    EXPECT_FLOAT_EQ(variable.initializer.stddev, 0.09f) << variable.name;
  }
}

}  // namespace
}  // namespace pushpull
