#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/common/model/families/family_testing.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

// The numbers of torchvision's networks.
TEST(VggTest, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(CountParameters(BuildChecked("vgg_a")), 132863336);
  EXPECT_EQ(CountParameters(BuildChecked("vgg_16")), 138357544);
  EXPECT_EQ(CountParameters(BuildChecked("vgg_19")), 143667240);
}

TEST(VggTest, VariablesCarrySlimsNamesAndShapes) {
  const NetworkSpec network = BuildChecked("vgg_16");
  const auto shape = [&](const std::string& name) { return ShapeOf(network, "vgg_16/" + name); };
  EXPECT_THAT(shape("conv1/conv1_1/weights"), ElementsAre(3, 3, 3, 64));
  EXPECT_THAT(shape("conv1/conv1_1/biases"), ElementsAre(64));
  EXPECT_THAT(shape("conv3/conv3_3/weights"), ElementsAre(3, 3, 256, 256));
  EXPECT_THAT(shape("conv5/conv5_4/weights"), ElementsAre());
  EXPECT_THAT(shape("fc6/weights"), ElementsAre(7, 7, 512, 4096));
  EXPECT_THAT(shape("fc7/weights"), ElementsAre(1, 1, 4096, 4096));
  EXPECT_THAT(shape("fc8/weights"), ElementsAre(1, 1, 4096, 1000));
  EXPECT_THAT(shape("fc8/biases"), ElementsAre(1000));
}

TEST(VggTest, EachPoolHalvesTheMapAndRoundsDown) {
  const NetworkSpec network = BuildChecked("vgg_a", 70, 0.25);
  std::vector<int> heights;
  for (const Node& node : network.nodes) {
    if (std::holds_alternative<op::MaxPool>(node.op)) heights.push_back(node.shape.height);
  }
  EXPECT_THAT(heights, ElementsAre(35, 17, 8, 4, 2));
  EXPECT_THAT(ShapeOf(network, "vgg_a/fc6/weights"), ElementsAre(2, 2, 128, 1024));
}

TEST(VggTest, HasBatchNormIfItsConfigHas) {
  config::Classifier classifier = MakeClassifier("vgg_a", 64, 0.25);
  const auto count_norms = [&] {
    int count = 0;
    ForEachBatchNorm(BuildChecked(classifier), [&](const op::BatchNorm&) { ++count; });
    return count;
  };
  EXPECT_EQ(count_norms(), 0);
  classifier.mutable_feature_extractor()->mutable_conv_hyperparams()->mutable_batch_norm();
  EXPECT_EQ(count_norms(), 10) << "all layers but the last";
  const NetworkSpec network = BuildChecked(classifier);
  EXPECT_THAT(ShapeOf(network, "vgg_a/conv1/conv1_1/biases"), ElementsAre());
  EXPECT_THAT(ShapeOf(network, "vgg_a/fc8/biases"), ElementsAre(1000));
}

TEST(VggTest, DropoutIsBeforeTheLastTwoLayers) {
  config::Classifier classifier = MakeClassifier("vgg_a", 32, 0.25);
  classifier.set_dropout_keep_probability(0.5f);
  std::vector<std::string> names;
  for (const Node& node : BuildChecked(classifier).nodes) {
    if (std::holds_alternative<op::Dropout>(node.op)) names.push_back(node.name);
  }
  EXPECT_THAT(names, ElementsAre("vgg_a/fc7/Dropout", "vgg_a/fc8/Dropout"));
}

TEST(VggTest, LayersHaveTheirScope) {
  const NetworkSpec network = BuildChecked("vgg_a", 32, 0.25);
  EXPECT_EQ(CountActivations(network, ActivationFunction::kRelu), 10);
  for (const VariableSpec& variable : network.variables) {
    const bool is_bias = variable.shape.size() == 1;
    EXPECT_FLOAT_EQ(variable.l2_weight, is_bias ? 0.0f : 5e-4f) << variable.name;
    EXPECT_EQ(variable.initializer.kind,
              is_bias ? Initializer::Kind::kConstant : Initializer::Kind::kTruncatedNormal)
        << variable.name;
  }
}

}  // namespace
}  // namespace pushpull
