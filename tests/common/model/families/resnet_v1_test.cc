#include "common/model/families/resnet_v1.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/common/model/families/family_testing.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

// The numbers of torchvision's networks.
TEST(ResnetV1Test, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(CountParameters(BuildChecked("resnet_v1_50")), 25557032);
  EXPECT_EQ(CountParameters(BuildChecked("resnet_v1_101")), 44549160);
  EXPECT_EQ(CountParameters(BuildChecked("resnet_v1_152")), 60192808);
}

TEST(ResnetV1Test, EachBlockHalvesTheMapInItsFirstUnit) {
  const NetworkSpec network = BuildChecked("resnet_v1_50");
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
  const NetworkSpec network = BuildChecked("resnet_v1_101");
  const auto shape = [&](const std::string& name) {
    return ShapeOf(network, "resnet_v1_101/" + name);
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
    const NetworkSpec network = BuildChecked("resnet_v1_50", size);
    const auto& first = std::get<op::Convolution>(network.nodes[0].op);
    EXPECT_EQ(first.window.padding, (SpatialPadding{3, 3, 3, 3})) << size;
    const auto& pool = std::get<op::MaxPool>(network.nodes[3].op);
    EXPECT_EQ(pool.window.padding, (SpatialPadding{1, 1, 1, 1})) << size;
  }
}

}  // namespace
}  // namespace pushpull
