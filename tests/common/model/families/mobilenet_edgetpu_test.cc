#include "common/model/families/mobilenet_edgetpu.h"

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

struct Body {
  NetworkSpec network;
  MobilenetEdgetpuEndpoints endpoints;
};

Body Build(const MobilenetEdgetpuOptions& options, FeatureShape image = {320, 320, 3}) {
  NetworkBuilder builder("MobilenetEdgeTPU", image, /*freeze_batch_norm=*/false);
  Body body;
  body.endpoints =
      AddMobilenetEdgetpuBody("MobilenetEdgeTPU", options, SlimHyperparams(), &builder);
  body.network = FinishBody(std::move(builder), body.endpoints.layer_23);
  return body;
}

// The numbers that TensorFlow's own test of its Keras backbones expects, without the last
// convolution to 1,280 channels and its batch norm.
TEST(MobilenetEdgetpuTest, HasTheNumberOfElementsOfTensorFlow) {
  EXPECT_EQ(CountElements(Build({1.0}).network), 2849312 - (192 + 4) * 1280);
  EXPECT_EQ(CountElements(Build({0.75}).network), 1737288 - (144 + 4) * 1280);
}

NetworkSpec BuildMobilenetEdgetpu(double multiplier) {
  return BuildChecked(MakeClassifier("mobilenet_edgetpu", 224, multiplier, 1001));
}

// The numbers of TensorFlow's Keras backbones and the layer of the class scores.
TEST(MobilenetEdgetpuTest, ClassifierHasTheNumberOfElementsOfTensorFlow) {
  EXPECT_EQ(CountElements(BuildMobilenetEdgetpu(1.0)), 2849312 + 1281 * 1001);
  EXPECT_EQ(CountElements(BuildMobilenetEdgetpu(0.75)), 1737288 + 1281 * 1001);
}

TEST(MobilenetEdgetpuTest, ClassifierEndsWithSlimsLayers) {
  const NetworkSpec network = BuildMobilenetEdgetpu(0.5);
  const auto shape = [&](const std::string& name) {
    return ShapeOf(network, "MobilenetEdgeTPU/" + name);
  };
  EXPECT_THAT(shape("Conv_1/weights"), ElementsAre(1, 1, 96, 1280));
  EXPECT_THAT(shape("Logits/Conv2d_1c_1x1/weights"), ElementsAre(1, 1, 1280, 1001));
  EXPECT_THAT(shape("Logits/Conv2d_1c_1x1/biases"), ElementsAre(1001));
}

// The shapes that TensorFlow's own test of its detectors expects.
TEST(MobilenetEdgetpuTest, EndpointsHaveTheShapesOfTensorFlow) {
  const auto expect = [](int size, int stride_16, int stride_32) {
    const Body body = Build({}, {size, size, 3});
    EXPECT_EQ(body.network.nodes[body.endpoints.layer_18_expansion].shape,
              (FeatureShape{stride_16, stride_16, 384}));
    EXPECT_EQ(body.network.nodes[body.endpoints.layer_23].shape,
              (FeatureShape{stride_32, stride_32, 192}));
  };
  expect(128, 8, 4);
  expect(299, 19, 10);
  expect(320, 20, 10);
}

TEST(MobilenetEdgetpuTest, EndpointsAreTheNodesOfTheirNames) {
  const Body body = Build({});
  EXPECT_EQ(body.network.nodes[body.endpoints.layer_18_expansion].name,
            "MobilenetEdgeTPU/expanded_conv_16/expand/Relu");
  EXPECT_EQ(body.network.nodes[body.endpoints.layer_23].name,
            "MobilenetEdgeTPU/expanded_conv_21/project/BatchNorm");
}

std::vector<int64_t> ShapeOf(const Body& body, const std::string& name) {
  return ShapeOf(body.network, "MobilenetEdgeTPU/" + name);
}

TEST(MobilenetEdgetpuTest, VariablesCarrySlimsNamesAndShapes) {
  const Body body = Build({});
  const auto shape = [&](const std::string& name) { return ShapeOf(body, name); };
  EXPECT_THAT(shape("Conv/weights"), ElementsAre(3, 3, 3, 32));
  EXPECT_THAT(shape("expanded_conv/expand/weights"), ElementsAre());  // it has no expansion
  EXPECT_THAT(shape("expanded_conv/project/weights"), ElementsAre(1, 1, 32, 16));
  EXPECT_THAT(shape("expanded_conv_1/expand/weights"), ElementsAre(3, 3, 16, 128));
  EXPECT_THAT(shape("expanded_conv_8/expand/weights"), ElementsAre(3, 3, 48, 192));
  EXPECT_THAT(shape("expanded_conv_8/depthwise/depthwise_weights"), ElementsAre());
  EXPECT_THAT(shape("expanded_conv_9/expand/weights"), ElementsAre(1, 1, 48, 384));
  EXPECT_THAT(shape("expanded_conv_9/depthwise/depthwise_weights"), ElementsAre(3, 3, 384, 1));
  EXPECT_THAT(shape("expanded_conv_17/depthwise/depthwise_weights"), ElementsAre(5, 5, 768, 1));
  EXPECT_THAT(shape("expanded_conv_21/project/BatchNorm/gamma"), ElementsAre(192));
}

std::vector<std::string> Sums(const Body& body) {
  std::vector<std::string> names;
  for (const Node& node : body.network.nodes) {
    if (std::holds_alternative<op::Add>(node.op)) names.push_back(node.name);
  }
  return names;
}

TEST(MobilenetEdgetpuTest, BlocksAddTheirInputsWhereSlimDoes) {
  const std::vector<std::string> sums = Sums(Build({}));
  EXPECT_EQ(sums.size(), 5 * 3);
  // The shapes agree, but slim leaves the sum out.
  EXPECT_EQ(std::count(sums.begin(), sums.end(), "MobilenetEdgeTPU/expanded_conv_13/project/add"),
            0);
}

TEST(MobilenetEdgetpuTest, EqualDepthsAddASum) {
  // All of the first depths are 32.
  const Body body = Build({0.25, 32});
  EXPECT_THAT(ShapeOf(body, "expanded_conv/project/weights"), ElementsAre(1, 1, 32, 32));
  EXPECT_EQ(Sums(body).front(), "MobilenetEdgeTPU/expanded_conv/project/add");
}

}  // namespace
}  // namespace pushpull
