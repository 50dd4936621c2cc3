#include "common/model/families/resnet_v1.h"

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

NetworkSpec Build(const std::string& type, int size = 224) {
  config::Classifier classifier;
  classifier.set_num_classes(1000);
  auto* resizer = classifier.mutable_image_resizer()->mutable_fixed_shape_resizer();
  resizer->set_height(size);
  resizer->set_width(size);
  classifier.mutable_feature_extractor()->set_type(type);
  const NetworkSpec network = BuildClassifier(classifier);
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  return network;
}

// The numbers of torchvision's networks.
TEST(ResnetV1Test, HasThePublishedNumberOfParameters) {
  const auto count = [](const std::string& type) {
    return VariableLayout::Create(Build(type).variables)->num_trainable_parameters();
  };
  EXPECT_EQ(count("resnet_v1_50"), 25557032);
  EXPECT_EQ(count("resnet_v1_101"), 44549160);
  EXPECT_EQ(count("resnet_v1_152"), 60192808);
}

TEST(ResnetV1Test, EachBlockHalvesTheMapInItsFirstUnit) {
  const NetworkSpec network = Build("resnet_v1_50");
  std::vector<std::string> names;
  std::vector<int> heights;
  for (const Node& node : network.nodes) {
    if (!std::holds_alternative<op::Add>(node.op)) continue;
    if (!heights.empty() && heights.back() == node.shape.height) continue;
    heights.push_back(node.shape.height);
    names.push_back(node.name);
  }
  EXPECT_THAT(heights, ElementsAre(56, 28, 14, 7));
  EXPECT_THAT(names, ElementsAre("resnet_v1_50/block1/unit_1/bottleneck_v1/add",
                                 "resnet_v1_50/block2/unit_1/bottleneck_v1/add",
                                 "resnet_v1_50/block3/unit_1/bottleneck_v1/add",
                                 "resnet_v1_50/block4/unit_1/bottleneck_v1/add"));
}

TEST(ResnetV1Test, VariablesCarrySlimsNamesAndShapes) {
  const VariableLayout layout = *VariableLayout::Create(Build("resnet_v1_101").variables);
  const auto shape = [&](const std::string& name) {
    const std::optional<int64_t> i = layout.Find("resnet_v1_101/" + name);
    return i.has_value() ? layout.variables()[*i].shape : std::vector<int64_t>{};
  };
  EXPECT_THAT(shape("conv1/weights"), ElementsAre(7, 7, 3, 64));
  EXPECT_THAT(shape("block1/unit_1/bottleneck_v1/shortcut/weights"), ElementsAre(1, 1, 64, 256));
  EXPECT_THAT(shape("block1/unit_2/bottleneck_v1/shortcut/weights"), ElementsAre());
  EXPECT_THAT(shape("block3/unit_23/bottleneck_v1/conv2/weights"), ElementsAre(3, 3, 256, 256));
  EXPECT_THAT(shape("block4/unit_3/bottleneck_v1/conv3/BatchNorm/gamma"), ElementsAre(2048));
  EXPECT_THAT(shape("logits/weights"), ElementsAre(1, 1, 2048, 1000));
}

TEST(ResnetV1Test, PaddingDoesNotDependOnTheSize) {
  for (const int size : {32, 33, 64}) {
    const NetworkSpec network = Build("resnet_v1_50", size);
    const auto& first = std::get<op::Convolution>(network.nodes[0].op);
    EXPECT_EQ(first.window.padding, (SpatialPadding{3, 3, 3, 3})) << size;
    const auto& pool = std::get<op::MaxPool>(network.nodes[3].op);
    EXPECT_EQ(pool.window.padding, (SpatialPadding{1, 1, 1, 1})) << size;
  }
}

}  // namespace
}  // namespace pushpull
