#include "worker/model/fused_network.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/classifier.h"
#include "tests/testkit/model/tiny_model.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr ActivationFunction kRelu6 = ActivationFunction::kRelu6;
using Kind = FusedLayer::Kind;

FusedNetwork Fuse(const NetworkSpec& network) {
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  const absl::StatusOr<FusedNetwork> fused = FuseNetwork(network);
  EXPECT_TRUE(fused.ok()) << fused.status();
  return fused.ok() ? *fused : FusedNetwork();
}

std::string ErrorOf(NetworkBuilder builder) {
  const NetworkSpec network = std::move(builder).Finish();
  return std::string(FuseNetwork(network).status().message());
}

NetworkBuilder MakeBuilder() { return NetworkBuilder("Test", {8, 8, 4}, false); }

TEST(FusedNetworkTest, JoinsEverythingThatFollowsAConvolution) {
  const FusedNetwork network = Fuse(MakeTinyNetwork({.keep_classes = 0.6f}));
  std::vector<std::string> names;
  std::vector<int> inputs, skips;
  for (const FusedLayer& layer : network.layers) {
    names.push_back(layer.name);
    inputs.push_back(layer.input());
    skips.push_back(layer.skip);
  }
  EXPECT_THAT(names, ElementsAre("T/stem", "T/b0/depthwise", "T/b0/project", "T/b1/expand",
                                 "T/b1/depthwise", "T/b1/project", "T/b2/expand", "T/b2/depthwise",
                                 "T/b2/project", "T/pool", "T/hidden", "T/classes"));
  EXPECT_THAT(inputs, ElementsAre(FusedLayer::kImage, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  const int none = FusedLayer::kNone;
  EXPECT_THAT(skips, ElementsAre(none, none, none, none, none, 2, none, none, 5, none, none, none));
  EXPECT_THAT(network.outputs, ElementsAre(11));

  const FusedLayer& depthwise = network.layers[1];
  EXPECT_EQ(depthwise.kind, Kind::kDepthwise);
  EXPECT_TRUE(depthwise.batch_norm.has_value());
  EXPECT_EQ(depthwise.activation, FusedActivation::kRelu6);
  EXPECT_EQ(depthwise.input_shape(), (FeatureShape{4, 3, 4}));
  const FusedLayer& classes = network.layers[11];
  EXPECT_EQ(classes.kind, Kind::kConvolution);
  EXPECT_FALSE(classes.batch_norm.has_value());
  EXPECT_NE(classes.biases, op::kNoVariable);
  EXPECT_EQ(classes.keep_probability, 0.6f);
  EXPECT_EQ(network.layers[10].keep_probability, 1.0f);
}

// The plan that MobileNetV2 has always had: one layer per convolution and one for the pool.
TEST(FusedNetworkTest, MobilenetV2HasOneLayerPerConvolution) {
  config::Classifier classifier;
  classifier.set_num_classes(10);
  classifier.mutable_feature_extractor()->set_type("mobilenet_v2");
  auto* const resizer = classifier.mutable_image_resizer()->mutable_fixed_shape_resizer();
  resizer->set_height(96);
  resizer->set_width(96);
  const FusedNetwork network = Fuse(BuildClassifier(classifier));
  ASSERT_EQ(network.layers.size(), 52u + 2u);
  int skips = 0, activations = 0, batch_norms = 0;
  for (int l = 0; l < 54; ++l) {
    const FusedLayer& layer = network.layers[l];
    EXPECT_EQ(layer.input(), l - 1) << layer.name;
    skips += layer.skip != FusedLayer::kNone;
    activations += layer.activation == FusedActivation::kRelu6;
    batch_norms += layer.batch_norm.has_value();
  }
  EXPECT_EQ(skips, 10);
  EXPECT_EQ(activations, 35);  // all but the 17 projections, the pool and the classes
  EXPECT_EQ(batch_norms, 52);
}

TEST(FusedNetworkTest, OutputsOfADetectorAreThoseOfItsHeads) {
  const FusedNetwork network = Fuse(MakeTinyDetector());
  EXPECT_THAT(network.outputs, ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(network.layers[2].input(), 0);
  EXPECT_EQ(network.layers[4].input(), 1);
}

// a, b and c = b's projection, and the sum of c and a.
NetworkSpec MakeBlock(bool swapped) {
  NetworkBuilder builder = MakeBuilder();
  builder.network().num_classes = 4;
  const LayerHyperparams plain = TinyHyperparams();
  const int a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4}, plain);
  const int b = builder.AddNormalized({"b", a, 1, 1, 6, kRelu6}, plain);
  const int c = builder.AddNormalized({"c", b, 1, 1, 4}, plain);
  const std::vector<int> inputs = swapped ? std::vector<int>{a, c} : std::vector<int>{c, a};
  const int sum = builder.AddNode("sum", op::Add(), inputs);
  const int pool = builder.AddNode("pool", op::GlobalAveragePool(), {sum});
  builder.AddBiased({"classes", pool, 1, 1, 4}, plain);
  return std::move(builder).Finish();
}

TEST(FusedNetworkTest, EitherInputOfASumMayBeTheSkip) {
  for (const bool swapped : {false, true}) {
    const FusedNetwork network = Fuse(MakeBlock(swapped));
    ASSERT_EQ(network.layers.size(), 5u);
    EXPECT_EQ(network.layers[2].skip, 0);
    EXPECT_EQ(network.layers[3].input(), 2);
  }
}

// The names of the layers that are gathers.
std::vector<std::string> GathersOf(NetworkBuilder builder, int last) {
  const int pool = builder.AddNode("pool", op::GlobalAveragePool(), {last});
  builder.network().num_classes = 4;
  builder.AddBiased({"classes", pool, 1, 1, 4}, TinyHyperparams());
  std::vector<std::string> names;
  for (const FusedLayer& layer : Fuse(std::move(builder).Finish()).layers) {
    if (layer.kind == Kind::kGather) names.push_back(layer.name);
  }
  return names;
}

TEST(FusedNetworkTest, WhatCannotJoinALayerIsALayerOfItsOwn) {
  const LayerHyperparams plain = TinyHyperparams();
  NetworkBuilder builder = MakeBuilder();
  int last = builder.AddNode("of_image", op::Activation{kRelu6}, {Node::kImage});
  EXPECT_THAT(GathersOf(std::move(builder), last), ElementsAre("of_image"));

  builder = MakeBuilder();  // its derivative is not 0 or 1
  last = builder.AddNormalized({"a", Node::kImage, 1, 1, 4, ActivationFunction::kHardSwish}, plain);
  EXPECT_THAT(GathersOf(std::move(builder), last), ElementsAre("a/HardSwish"));

  builder = MakeBuilder();
  last = builder.AddNormalized({"a", Node::kImage, 1, 1, 4, kRelu6}, plain);
  last = builder.AddNode("second", op::Activation{kRelu6}, {last});
  EXPECT_THAT(GathersOf(std::move(builder), last), ElementsAre("second"));

  builder = MakeBuilder();  // a sum of two activations
  int a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4, kRelu6}, plain);
  int b = builder.AddNormalized({"b", a, 1, 1, 4, kRelu6}, plain);
  last = builder.AddNode("sum", op::Add(), {a, b});
  EXPECT_THAT(GathersOf(std::move(builder), last), ElementsAre("sum"));
}

// The sum's gradient is that of the skip too, so it may not be one that is still being read.
TEST(FusedNetworkTest, ASumIsALayerOfItsOwnIfItsSkipHasOtherReaders) {
  const LayerHyperparams plain = TinyHyperparams();
  NetworkBuilder builder = MakeBuilder();  // the convolution before the sum reads the skip
  int a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4}, plain);
  int b = builder.AddNormalized({"b", a, 1, 1, 4}, plain);
  int sum = builder.AddNode("sum", op::Add(), {b, a});
  EXPECT_THAT(GathersOf(std::move(builder), sum), ElementsAre("sum"));

  builder = MakeBuilder();  // nothing but the sum reads either
  a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4}, plain);
  b = builder.AddNormalized({"b", Node::kImage, 1, 1, 4}, plain);
  sum = builder.AddNode("sum", op::Add(), {b, a});
  EXPECT_THAT(GathersOf(std::move(builder), sum), ElementsAre("sum"));

  builder = MakeBuilder();  // a later block reads it and adds it too
  a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4}, plain);
  std::vector<int> sums;
  for (const std::string name : {"b", "c"}) {
    b = builder.AddNormalized({name + "1", a, 1, 1, 4, kRelu6}, plain);
    b = builder.AddNormalized({name + "2", b, 1, 1, 4}, plain);
    sums.push_back(builder.AddNode(name + "_sum", op::Add(), {b, a}));
  }
  const int both = builder.AddNode("both", op::Concat(), {sums[0], sums[1]});
  EXPECT_THAT(GathersOf(std::move(builder), both), ElementsAre("b_sum", "both"));

  builder = MakeBuilder();  // a later convolution reads it, after a dropout
  a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4}, plain);
  b = builder.AddNormalized({"b", a, 1, 1, 4, kRelu6}, plain);
  b = builder.AddNormalized({"c", b, 1, 1, 4}, plain);
  sum = builder.AddNode("sum", op::Add(), {b, a});
  b = builder.AddNormalized({"late", a, 1, 1, 4, kRelu6, 0.5f}, plain);
  b = builder.AddNode("second_sum", op::Add(), {sum, b});
  EXPECT_THAT(GathersOf(std::move(builder), b), ElementsAre("sum", "second_sum"));
}

TEST(FusedNetworkTest, NamesTheNodeThatItCannotCompute) {
  const LayerHyperparams plain = TinyHyperparams();
  NetworkBuilder builder = MakeBuilder();
  builder.AddBiased({"a", Node::kImage, 1, 1, 4, kRelu6, 0.5f}, plain);
  EXPECT_THAT(ErrorOf(std::move(builder)), HasSubstr("node a/Dropout (dropout) reads the image"));

  builder = MakeBuilder();
  builder.AddBiased({"a", Node::kImage, 8, 8, 4, kRelu6}, plain);
  EXPECT_THAT(ErrorOf(std::move(builder)), HasSubstr("node a/Relu6 (activation) is an output"));

  builder = MakeBuilder();
  int a = builder.AddBiased({"a", Node::kImage, 1, 1, 4}, plain);
  a = builder.AddNode("drop", op::Dropout{0.5f}, {a});
  builder.AddNode("sum", op::Add(), {a, a});
  EXPECT_THAT(ErrorOf(std::move(builder)), HasSubstr("node drop (dropout) is not read by exactly"));

  builder = MakeBuilder();
  a = builder.AddBiased({"a", Node::kImage, 1, 1, 4}, plain);
  a = builder.AddNode("drop", op::Dropout{0.5f}, {a});
  builder.AddNode("up", op::Upsample{2}, {a});
  EXPECT_THAT(ErrorOf(std::move(builder)), HasSubstr("node up (upsample) reads a dropout"));

  builder = MakeBuilder();
  a = builder.AddNode("pool", op::GlobalAveragePool(), {Node::kImage});
  builder.AddNode("norm", op::BatchNorm(), {a});
  EXPECT_THAT(ErrorOf(std::move(builder)),
              HasSubstr("node norm (batch norm) does not follow a convolution"));
}

}  // namespace
}  // namespace pushpull
