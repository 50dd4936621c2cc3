#include "worker/model/fused_network.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/mobilenet_v2.h"
#include "tests/worker/model/tiny_model.h"

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
  std::vector<int> inputs, residuals;
  for (const FusedLayer& layer : network.layers) {
    names.push_back(layer.name);
    inputs.push_back(layer.input);
    residuals.push_back(layer.residual);
  }
  EXPECT_THAT(names, ElementsAre("T/stem", "T/b0/depthwise", "T/b0/project", "T/b1/expand",
                                 "T/b1/depthwise", "T/b1/project", "T/b2/expand", "T/b2/depthwise",
                                 "T/b2/project", "T/pool", "T/hidden", "T/classes"));
  EXPECT_THAT(inputs, ElementsAre(FusedLayer::kImage, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  const int none = FusedLayer::kNone;
  EXPECT_THAT(residuals,
              ElementsAre(none, none, none, none, none, 2, none, none, 5, none, none, none));
  EXPECT_THAT(network.outputs, ElementsAre(11));

  const FusedLayer& depthwise = network.layers[1];
  EXPECT_EQ(depthwise.kind, Kind::kDepthwise);
  EXPECT_TRUE(depthwise.batch_norm.has_value());
  EXPECT_EQ(depthwise.activation, kRelu6);
  EXPECT_EQ(depthwise.input_shape, (FeatureShape{4, 3, 4}));
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
  auto* const resizer = classifier.mutable_image_resizer()->mutable_fixed_shape_resizer();
  resizer->set_height(96);
  resizer->set_width(96);
  const FusedNetwork network = Fuse(BuildMobilenetV2(classifier));
  ASSERT_EQ(network.layers.size(), 52u + 2u);
  int residuals = 0, activations = 0, batch_norms = 0;
  for (int l = 0; l < 54; ++l) {
    const FusedLayer& layer = network.layers[l];
    EXPECT_EQ(layer.input, l - 1) << layer.name;
    residuals += layer.residual != FusedLayer::kNone;
    activations += layer.activation == kRelu6;
    batch_norms += layer.batch_norm.has_value();
  }
  EXPECT_EQ(residuals, 10);
  EXPECT_EQ(activations, 35);  // all but the 17 projections, the pool and the classes
  EXPECT_EQ(batch_norms, 52);
}

TEST(FusedNetworkTest, OutputsOfADetectorAreThoseOfItsHeads) {
  const FusedNetwork network = Fuse(MakeTinyDetector());
  EXPECT_THAT(network.outputs, ElementsAre(2, 3, 4, 5));
  EXPECT_EQ(network.layers[2].input, 0);
  EXPECT_EQ(network.layers[4].input, 1);
}

TEST(FusedNetworkTest, EitherInputOfASumMayBeTheResidual) {
  for (const bool swapped : {false, true}) {
    NetworkBuilder builder = MakeBuilder();
    builder.network().num_classes = 4;
    const int a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4}, TinyHyperparams());
    const int b = builder.AddNormalized({"b", a, 1, 1, 4}, TinyHyperparams());
    const int sum = builder.AddNode("sum", op::Add(),
                                    swapped ? std::vector<int>{a, b} : std::vector<int>{b, a});
    const int pool = builder.AddNode("pool", op::GlobalAveragePool(), {sum});
    builder.AddBiased({"classes", pool, 1, 1, 4}, TinyHyperparams());
    const FusedNetwork network = Fuse(std::move(builder).Finish());
    EXPECT_EQ(network.layers[1].residual, 0);
    EXPECT_EQ(network.layers[2].input, 1);
  }
}

TEST(FusedNetworkTest, NamesTheNodeThatItCannotFuse) {
  const LayerHyperparams plain = TinyHyperparams();
  NetworkBuilder builder = MakeBuilder();
  builder.AddNode("activation", op::Activation{kRelu6}, {Node::kImage});
  EXPECT_THAT(ErrorOf(std::move(builder)),
              HasSubstr("node activation (activation) does not follow a convolution"));

  builder = MakeBuilder();
  int a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4, kRelu6}, plain);
  builder.AddNode("again", op::Activation{kRelu6}, {a});
  EXPECT_THAT(ErrorOf(std::move(builder)), HasSubstr("node again (activation)"));

  builder = MakeBuilder();  // a sum of two activations
  a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4, kRelu6}, plain);
  int b = builder.AddNormalized({"b", a, 1, 1, 4, kRelu6}, plain);
  builder.AddNode("sum", op::Add(), {a, b});
  EXPECT_THAT(ErrorOf(std::move(builder)), HasSubstr("node sum (add)"));

  builder = MakeBuilder();  // a later convolution reads the residual, behind a dropout
  a = builder.AddNormalized({"a", Node::kImage, 1, 1, 4}, plain);
  b = builder.AddNormalized({"b", a, 1, 1, 4}, plain);
  builder.AddNode("sum", op::Add(), {a, b});
  builder.AddNormalized({"late", a, 1, 1, 4, kRelu6, 0.5f}, plain);
  EXPECT_THAT(ErrorOf(std::move(builder)), HasSubstr("node sum (add)"));

  builder = MakeBuilder();
  builder.AddBiased({"a", Node::kImage, 1, 1, 4, kRelu6, 0.5f}, plain);
  EXPECT_THAT(ErrorOf(std::move(builder)), HasSubstr("node a/Dropout (dropout) reads the image"));

  builder = MakeBuilder();
  builder.AddBiased({"a", Node::kImage, 8, 8, 4, kRelu6}, plain);
  EXPECT_THAT(ErrorOf(std::move(builder)), HasSubstr("node a/Relu6 (activation) is an output"));
}

}  // namespace
}  // namespace pushpull
