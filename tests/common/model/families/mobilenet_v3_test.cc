#include "common/model/families/mobilenet_v3.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/classifier.h"
#include "common/model/variable_layout.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

config::Classifier MakeClassifier(const std::string& type, int size, float width) {
  config::Classifier classifier;
  classifier.set_num_classes(1000);
  auto* resizer = classifier.mutable_image_resizer()->mutable_fixed_shape_resizer();
  resizer->set_height(size);
  resizer->set_width(size);
  classifier.mutable_feature_extractor()->set_type(type);
  classifier.mutable_feature_extractor()->set_depth_multiplier(width);
  return classifier;
}

NetworkSpec Build(const std::string& type, int size = 224, float width = 1.0f) {
  const NetworkSpec network = BuildClassifier(MakeClassifier(type, size, width));
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  return network;
}

int64_t CountParameters(const NetworkSpec& network) {
  return VariableLayout::Create(network.variables)->num_trainable_parameters();
}

// The numbers of torchvision's networks.
TEST(MobilenetV3Test, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(CountParameters(Build("mobilenet_v3_large")), 5483032);
  EXPECT_EQ(CountParameters(Build("mobilenet_v3_small")), 2542856);
}

template <typename Op>
int Count(const NetworkSpec& network) {
  return static_cast<int>(
      std::count_if(network.nodes.begin(), network.nodes.end(),
                    [](const Node& node) { return std::holds_alternative<Op>(node.op); }));
}

TEST(MobilenetV3Test, HasTheBlocksOfThePaper) {
  const NetworkSpec large = Build("mobilenet_v3_large"), small = Build("mobilenet_v3_small");
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
  const VariableLayout layout = *VariableLayout::Create(Build("mobilenet_v3_large").variables);
  const auto shape = [&](const std::string& name) {
    const std::optional<int64_t> i = layout.Find("MobilenetV3/" + name);
    return i.has_value() ? layout.variables()[*i].shape : std::vector<int64_t>{};
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
  const NetworkSpec network = Build("mobilenet_v3_small", 96, 0.5f);
  const VariableLayout layout = *VariableLayout::Create(network.variables);
  EXPECT_TRUE(layout.Find("MobilenetV3/Conv_2/weights").has_value());
  const auto shape = layout.variables()[*layout.Find("MobilenetV3/Conv_2/weights")].shape;
  EXPECT_THAT(shape, ElementsAre(1, 1, 288, 1024));
}

}  // namespace
}  // namespace pushpull
