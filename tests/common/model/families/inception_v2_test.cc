#include "common/model/families/inception_v2.h"

#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/ssd/ssd_network.h"
#include "common/model/variable_layout.h"
#include "tests/common/model/families/family_testing.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

NetworkSpec BuildInception(int size, double multiplier = 1.0) {
  config::Classifier classifier = MakeClassifier("inception_v2", size, multiplier, 1001);
  classifier.mutable_feature_extractor()->set_min_depth(16);
  return BuildChecked(classifier);
}

NetworkSpec BuildDetector(const std::string& extractor = "") {
  const auto config = MakeSsdTestConfig(
      "ssd_inception_v2",
      "feature_extractor { override_base_feature_extractor_hyperparams: true " + extractor + " }");
  NetworkSpec network = BuildSsd(config.model().ssd());
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  return network;
}

VariableSpec Find(const NetworkSpec& network, const std::string& name) {
  const VariableLayout layout = *VariableLayout::Create(network.variables);
  const std::optional<int64_t> i = layout.Find(name);
  return i.has_value() ? layout.variables()[*i] : VariableSpec{};
}

const Node& NodeOf(const NetworkSpec& network, const std::string& name) {
  for (const Node& node : network.nodes) {
    if (node.name == name) return node;
  }
  ADD_FAILURE() << "no node " << name;
  return network.nodes[0];
}

// The number that slim's own test expects, with the moving statistics, and the class scores.
TEST(InceptionV2Test, HasTheNumberOfElementsOfSlim) {
  const NetworkSpec network = BuildInception(224);
  EXPECT_EQ(CountElements(network), 10173112 + 1025 * 1001);
  // 11.2 million.
  EXPECT_EQ((CountParameters(network) + 50000) / 100000, 112);
}

// The shapes that slim's own test expects.
TEST(InceptionV2Test, EndpointsHaveTheShapesOfSlim) {
  const NetworkSpec network = BuildInception(224);
  const std::map<std::string, FeatureShape> expected = {
      {"Conv2d_1a_7x7/Relu", {112, 112, 64}}, {"MaxPool_2a_3x3", {56, 56, 64}},
      {"Conv2d_2c_3x3/Relu", {56, 56, 192}},  {"MaxPool_3a_3x3", {28, 28, 192}},
      {"Mixed_3b/concat", {28, 28, 256}},     {"Mixed_3c/concat", {28, 28, 320}},
      {"Mixed_4a/concat", {14, 14, 576}},     {"Mixed_4b/concat", {14, 14, 576}},
      {"Mixed_4e/concat", {14, 14, 576}},     {"Mixed_5a/concat", {7, 7, 1024}},
      {"Mixed_5b/concat", {7, 7, 1024}},      {"Mixed_5c/concat", {7, 7, 1024}}};
  for (const auto& [name, shape] : expected) {
    EXPECT_EQ(NodeOf(network, "InceptionV2/" + name).shape, shape) << name;
  }
}

TEST(InceptionV2Test, ClassifierVariablesCarrySlimsNamesAndShapes) {
  const NetworkSpec network = BuildInception(224);
  const auto shape = [&](const std::string& name) {
    return ShapeOf(network, "InceptionV2/" + name);
  };
  EXPECT_THAT(shape("Conv2d_1a_7x7/depthwise_weights"), ElementsAre(7, 7, 3, 8));
  EXPECT_THAT(shape("Conv2d_1a_7x7/pointwise_weights"), ElementsAre(1, 1, 24, 64));
  EXPECT_THAT(shape("Conv2d_1a_7x7/biases"), ElementsAre(64));
  EXPECT_THAT(shape("Conv2d_1a_7x7/BatchNorm/beta"), ElementsAre());
  EXPECT_THAT(shape("Conv2d_2b_1x1/BatchNorm/beta"), ElementsAre(64));
  EXPECT_THAT(shape("Conv2d_2b_1x1/BatchNorm/gamma"), ElementsAre());
  EXPECT_THAT(shape("Mixed_3b/Branch_2/Conv2d_0c_3x3/weights"), ElementsAre(3, 3, 96, 96));
  EXPECT_THAT(shape("Mixed_4a/Branch_0/Conv2d_1a_3x3/weights"), ElementsAre(3, 3, 128, 160));
  EXPECT_THAT(shape("Mixed_4a/Branch_1/Conv2d_0b_3x3/weights"), ElementsAre(3, 3, 64, 96));
  EXPECT_THAT(shape("Mixed_4a/Branch_1/Conv2d_1a_3x3/weights"), ElementsAre(3, 3, 96, 96));
  EXPECT_THAT(shape("Mixed_5c/Branch_3/Conv2d_0b_1x1/weights"), ElementsAre(1, 1, 1024, 128));
  EXPECT_THAT(shape("Logits/Conv2d_1c_1x1/weights"), ElementsAre(1, 1, 1024, 1001));
}

TEST(InceptionV2Test, NarrowNetworksRepeatFewerChannels) {
  const auto shape = [](double multiplier) {
    return ShapeOf(BuildInception(64, multiplier), "InceptionV2/Conv2d_1a_7x7/depthwise_weights");
  };
  EXPECT_THAT(shape(0.5), ElementsAre(7, 7, 3, 8));
  EXPECT_THAT(shape(0.25), ElementsAre(7, 7, 3, 5));
}

TEST(InceptionV2Test, OnlyTheLastModuleTakesTheLargestElement) {
  const NetworkSpec network = BuildInception(64);
  EXPECT_TRUE(std::holds_alternative<op::AveragePool>(
      NodeOf(network, "InceptionV2/Mixed_5b/Branch_3/AvgPool_0a_3x3").op));
  EXPECT_TRUE(std::holds_alternative<op::MaxPool>(
      NodeOf(network, "InceptionV2/Mixed_5c/Branch_3/MaxPool_0a_3x3").op));
}

TEST(InceptionV2Test, LayersHaveSlimsInitializersAndL2Weights) {
  const NetworkSpec network = BuildInception(64);
  const auto expect = [&](const std::string& name, float stddev, float l2_weight) {
    const VariableSpec variable = Find(network, "InceptionV2/" + name);
    EXPECT_EQ(variable.initializer.kind, Initializer::Kind::kTruncatedNormal) << name;
    EXPECT_FLOAT_EQ(variable.initializer.stddev, stddev) << name;
    EXPECT_FLOAT_EQ(variable.l2_weight, l2_weight) << name;
  };
  expect("Conv2d_1a_7x7/depthwise_weights", 1.0f, 0.0f);
  expect("Conv2d_1a_7x7/pointwise_weights", 1.0f, 0.0f);
  expect("Conv2d_2b_1x1/weights", 0.1f, 4e-5f);
  expect("Mixed_3b/Branch_1/Conv2d_0a_1x1/weights", 0.09f, 4e-5f);
  expect("Mixed_5a/Branch_0/Conv2d_0a_1x1/weights", 0.09f, 4e-5f);
  expect("Mixed_3b/Branch_3/Conv2d_0b_1x1/weights", 0.1f, 4e-5f);
  // Variance scaling with a factor of 2.
  expect("Mixed_3b/Branch_0/Conv2d_0a_1x1/weights", std::sqrt(2.6f / 192), 4e-5f);
  ForEachBatchNorm(network, [](const op::BatchNorm& norm) {
    EXPECT_FLOAT_EQ(norm.decay, 0.9997f);
    EXPECT_EQ(norm.gamma, op::kNoVariable);
  });
}

TEST(InceptionV2Test, DetectorReadsTheMapsOfTensorflow) {
  const NetworkSpec network = BuildDetector();
  std::vector<int> sizes;
  for (const DetectionHead& head : network.detection->heads) sizes.push_back(head.height);
  EXPECT_THAT(sizes, ElementsAre(19, 10, 5, 3, 2, 1));
  const auto reads = [&](const std::string& name) {
    return network.nodes[NodeOf(network, name).inputs[0]].name;
  };
  const std::string root = "FeatureExtractor/InceptionV2/";
  EXPECT_EQ(reads("BoxPredictor_0/BoxEncodingPredictor"), root + "Mixed_4c/concat");
  EXPECT_EQ(reads("BoxPredictor_1/BoxEncodingPredictor"), root + "Mixed_5c/concat");
  EXPECT_THAT(Find(network, root + "Mixed_5c_1_Conv2d_2_1x1_256/weights").shape,
              ElementsAre(1, 1, 1024, 256));
  EXPECT_THAT(Find(network, root + "Mixed_5c_2_Conv2d_5_3x3_s2_128/weights").shape,
              ElementsAre(3, 3, 64, 128));
}

TEST(InceptionV2Test, DetectorHasTheHyperparamsOfItsConfig) {
  const NetworkSpec network = BuildDetector();
  const std::string root = "FeatureExtractor/InceptionV2/";
  const VariableSpec first = Find(network, root + "Conv2d_1a_7x7/depthwise_weights");
  EXPECT_FLOAT_EQ(first.l2_weight, 4e-5f);
  EXPECT_FLOAT_EQ(first.initializer.stddev, 1.0f);
  EXPECT_THAT(Find(network, root + "Conv2d_1a_7x7/BatchNorm/gamma").shape, ElementsAre(64));
  EXPECT_FLOAT_EQ(
      Find(network, root + "Mixed_4b/Branch_0/Conv2d_0a_1x1/weights").initializer.stddev, 0.03f);
  EXPECT_EQ(NodeOf(network, root + "Conv2d_2c_3x3/Relu6").shape, (FeatureShape{75, 75, 192}));
}

TEST(InceptionV2Test, ExplicitPaddingIsThatOfTheExtraLayersOnly) {
  const NetworkSpec network = BuildDetector("use_explicit_padding: true");
  const std::string root = "FeatureExtractor/InceptionV2/";
  // SAME pads the 300 rows of the image by five, the 10 rows of Mixed_5c by one.
  const auto& first =
      std::get<op::DepthwiseConvolution>(NodeOf(network, root + "Conv2d_1a_7x7/depthwise").op);
  EXPECT_EQ(first.window.padding, (SpatialPadding{2, 3, 2, 3}));
  const auto& extra =
      std::get<op::Convolution>(NodeOf(network, root + "Mixed_5c_2_Conv2d_2_3x3_s2_512").op);
  EXPECT_EQ(extra.window.padding, (SpatialPadding{1, 1, 1, 1}));
}

}  // namespace
}  // namespace pushpull
