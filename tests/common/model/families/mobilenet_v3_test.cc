#include "common/model/families/mobilenet_v3.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/common/model/families/family_testing.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

// The numbers of torchvision's networks.
TEST(MobilenetV3Test, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(CountParameters(BuildChecked("mobilenet_v3_large")), 5483032);
  EXPECT_EQ(CountParameters(BuildChecked("mobilenet_v3_small")), 2542856);
}

template <typename Op>
int Count(const NetworkSpec& network) {
  return static_cast<int>(
      std::count_if(network.nodes.begin(), network.nodes.end(),
                    [](const Node& node) { return std::holds_alternative<Op>(node.op); }));
}

TEST(MobilenetV3Test, HasTheBlocksOfThePaper) {
  const NetworkSpec large = BuildChecked("mobilenet_v3_large"),
                    small = BuildChecked("mobilenet_v3_small");
  EXPECT_EQ(Count<op::DepthwiseConvolution>(large), 15);
  EXPECT_EQ(Count<op::Multiply>(large), 8);  // squeeze and excitation
  EXPECT_EQ(Count<op::Add>(large), 10);
  EXPECT_EQ(Count<op::DepthwiseConvolution>(small), 11);
  EXPECT_EQ(Count<op::Multiply>(small), 9);
  EXPECT_EQ(Count<op::Add>(small), 6);
  std::vector<int> heights;
  for (const Node& node : large.nodes) {
    const auto* const depthwise = std::get_if<op::DepthwiseConvolution>(&node.op);
    if (depthwise != nullptr && depthwise->window.stride == 2) heights.push_back(node.shape.height);
  }
  EXPECT_THAT(heights, ElementsAre(56, 28, 14, 7));
}

TEST(MobilenetV3Test, VariablesCarrySlimsNamesAndShapes) {
  const NetworkSpec network = BuildChecked("mobilenet_v3_large");
  const auto shape = [&](const std::string& name) {
    return ShapeOf(network, "MobilenetV3/" + name);
  };
  EXPECT_THAT(shape("Conv/weights"), ElementsAre(3, 3, 3, 16));
  EXPECT_THAT(shape("expanded_conv/expand/weights"), ElementsAre());  // it has no expansion
  EXPECT_THAT(shape("expanded_conv/depthwise/depthwise_weights"), ElementsAre(3, 3, 16, 1));
  EXPECT_THAT(shape("expanded_conv_3/depthwise/depthwise_weights"), ElementsAre(5, 5, 72, 1));
  EXPECT_THAT(shape("expanded_conv_3/squeeze_excite/Conv/weights"), ElementsAre(1, 1, 72, 24));
  EXPECT_THAT(shape("expanded_conv_3/squeeze_excite/Conv_1/biases"), ElementsAre(72));
  EXPECT_THAT(shape("expanded_conv_14/project/BatchNorm/beta"), ElementsAre(160));
  EXPECT_THAT(shape("Conv_1/weights"), ElementsAre(1, 1, 160, 960));
  EXPECT_THAT(shape("Conv_2/weights"), ElementsAre(1, 1, 960, 1280));
  EXPECT_THAT(shape("Logits/Conv2d_1c_1x1/weights"), ElementsAre(1, 1, 1280, 1000));
}

TEST(MobilenetV3Test, AWidthBelowOneKeepsTheDepthOfTheLastConvolution) {
  const NetworkSpec network = BuildChecked("mobilenet_v3_small", 96, 0.5f);
  EXPECT_THAT(ShapeOf(network, "MobilenetV3/Conv_2/weights"), ElementsAre(1, 1, 288, 1024));
}

// A body with the means of its last map as scores.
struct Body {
  NetworkSpec network;
  MobilenetV3Endpoints endpoints;
};

Body BuildBody(const MobilenetV3Options& options, int size = 320) {
  NetworkBuilder builder("MobilenetV3", {size, size, 3}, /*freeze_batch_norm=*/false);
  Body body;
  body.endpoints = AddMobilenetV3Body("MobilenetV3", options, SlimHyperparams(), &builder);
  body.network = FinishBody(std::move(builder), body.endpoints.stride_32);
  return body;
}

// The shapes that TensorFlow's own tests of its detectors expect.
TEST(MobilenetV3Test, EndpointsOfDetectorsHaveTheShapesOfTensorFlow) {
  const auto expect = [](MobilenetV3Size size, int image, FeatureShape stride_16,
                         FeatureShape stride_32) {
    const Body body = BuildBody({size, 1.0, 32, /*reduced_tail=*/true}, image);
    EXPECT_EQ(body.network.nodes[body.endpoints.stride_16_expansion].shape, stride_16) << image;
    EXPECT_EQ(body.network.nodes[body.endpoints.stride_32].shape, stride_32) << image;
  };
  expect(MobilenetV3Size::kLarge, 128, {8, 8, 672}, {4, 4, 480});
  expect(MobilenetV3Size::kLarge, 299, {19, 19, 672}, {10, 10, 480});
  expect(MobilenetV3Size::kLarge, 320, {20, 20, 672}, {10, 10, 480});
  expect(MobilenetV3Size::kSmall, 128, {8, 8, 288}, {4, 4, 288});
  expect(MobilenetV3Size::kSmall, 299, {19, 19, 288}, {10, 10, 288});
  expect(MobilenetV3Size::kSmall, 320, {20, 20, 288}, {10, 10, 288});
}

TEST(MobilenetV3Test, EndpointsAreActivationsOfTheirLayers) {
  const auto expect = [](MobilenetV3Size size, const std::string& block) {
    const Body body = BuildBody({size});
    EXPECT_EQ(body.network.nodes[body.endpoints.stride_16_expansion].name,
              "MobilenetV3/" + block + "/expand/HardSwish");
    EXPECT_EQ(body.network.nodes[body.endpoints.stride_32].name, "MobilenetV3/Conv_1/HardSwish");
  };
  expect(MobilenetV3Size::kLarge, "expanded_conv_12");
  expect(MobilenetV3Size::kSmall, "expanded_conv_8");
}

// The numbers of torchvision's networks with reduced_tail, without their classifiers.
TEST(MobilenetV3Test, TheReducedTailHasThePublishedNumberOfParameters) {
  const auto count = [](MobilenetV3Size size) {
    return CountParameters(BuildBody({size, 1.0, 8, /*reduced_tail=*/true}).network);
  };
  EXPECT_EQ(count(MobilenetV3Size::kLarge), 1620512);
  EXPECT_EQ(count(MobilenetV3Size::kSmall), 438704);
}

TEST(MobilenetV3Test, TheReducedTailBeginsWithTheFirstOutputAtStride32) {
  const Body body = BuildBody({MobilenetV3Size::kLarge, 1.0, 8, /*reduced_tail=*/true});
  const auto shape = [&](const std::string& name) {
    return ShapeOf(body.network, "MobilenetV3/" + name + "/weights");
  };
  EXPECT_THAT(shape("expanded_conv_11/project"), ElementsAre(1, 1, 672, 112));
  EXPECT_THAT(shape("expanded_conv_12/expand"), ElementsAre(1, 1, 112, 672));
  EXPECT_THAT(shape("expanded_conv_12/project"), ElementsAre(1, 1, 672, 80));
  EXPECT_THAT(shape("expanded_conv_13/expand"), ElementsAre(1, 1, 80, 480));
  EXPECT_THAT(shape("expanded_conv_14/project"), ElementsAre(1, 1, 480, 80));
  EXPECT_THAT(shape("Conv_1"), ElementsAre(1, 1, 80, 480));
}

}  // namespace
}  // namespace pushpull
