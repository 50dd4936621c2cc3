#include "common/model/network_spec.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/model/network_builder.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr ActivationFunction kRelu = ActivationFunction::kRelu;

// Nodes: 0 a, 1 a/BatchNorm, 2 a/Relu, 3 b, 4 b/BatchNorm, 5 sum, 6 pool, 7 classes.
NetworkSpec MakeSmallNetwork() {
  NetworkBuilder builder("Small", {8, 6, 3}, /*freeze_batch_norm=*/false);
  builder.network().num_classes = 5;
  const LayerHyperparams hyperparams = SlimHyperparams();
  const int a = builder.AddNormalized({"a", Node::kImage, 3, 2, 4, kRelu}, hyperparams);
  const int b = builder.AddNormalized({"b", a, 1, 1, 4}, hyperparams);
  const int sum = builder.AddNode("sum", op::Add(), {b, a});
  const int pool = builder.AddNode("pool", op::GlobalAveragePool(), {sum});
  builder.AddBiased({"classes", pool, 1, 1, 5}, hyperparams);
  return std::move(builder).Finish();
}

std::string ErrorOf(const NetworkSpec& network) {
  const absl::Status status = CheckNetwork(network);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(NetworkSpecTest, KnowsShapesReadersAndOutputs) {
  const NetworkSpec network = MakeSmallNetwork();
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  ASSERT_EQ(network.nodes.size(), 8u);
  EXPECT_EQ(network.nodes[2].name, "a/Relu");
  EXPECT_EQ(network.nodes[5].shape, (FeatureShape{4, 3, 4}));
  EXPECT_EQ(network.nodes[7].shape, (FeatureShape{1, 1, 5}));
  EXPECT_EQ(ShapeOfInput(network, Node::kImage), network.input);
  const std::vector<std::vector<int>> readers = FindReaders(network);
  EXPECT_THAT(readers[2], ElementsAre(3, 5));
  EXPECT_THAT(readers[4], ElementsAre(5));
  EXPECT_THAT(readers[7], IsEmpty());
  EXPECT_THAT(OutputNodes(network), ElementsAre(7));
}

TEST(NetworkSpecTest, DeclaresVariablesInTheOrderOfTheNodes) {
  std::vector<std::string> names;
  for (const VariableSpec& variable : MakeSmallNetwork().variables) names.push_back(variable.name);
  EXPECT_THAT(names,
              ElementsAre("a/weights", "a/BatchNorm/gamma", "a/BatchNorm/beta",
                          "a/BatchNorm/moving_mean", "a/BatchNorm/moving_variance", "b/weights",
                          "b/BatchNorm/gamma", "b/BatchNorm/beta", "b/BatchNorm/moving_mean",
                          "b/BatchNorm/moving_variance", "classes/weights", "classes/biases"));
}

TEST(NetworkSpecTest, RefusesAGraphThatReadsWhatDoesNotComeBefore) {
  NetworkSpec network = MakeSmallNetwork();
  for (const int input : {3, 5, 100, -2}) {  // itself, later nodes, no node
    network.nodes[3].inputs = {input};
    EXPECT_THAT(ErrorOf(network),
                HasSubstr("node b (convolution) reads a node that does not come before it"));
  }
  network.nodes[3].inputs = {};
  EXPECT_THAT(ErrorOf(network), HasSubstr("node b (convolution) has 0 inputs, expected 1"));
  EXPECT_THAT(ErrorOf(NetworkSpec()), HasSubstr("has no nodes"));
}

TEST(NetworkSpecTest, RefusesShapesThatDoNotFit) {
  NetworkSpec network = MakeSmallNetwork();
  network.nodes[5].inputs = {4, Node::kImage};
  EXPECT_THAT(ErrorOf(network), HasSubstr("node sum (add) adds values of 4x3x4 and 8x6x3"));
  network = MakeSmallNetwork();
  network.nodes[2].shape = {4, 3, 5};
  EXPECT_THAT(ErrorOf(network), HasSubstr("node a/Relu (activation) has the shape 4x3x5, but its "
                                          "inputs give 4x3x4"));
  network = MakeSmallNetwork();
  std::get<op::Convolution>(network.nodes[0].op).window = {9, 1, {}};
  EXPECT_THAT(ErrorOf(network), HasSubstr("node a (convolution) has a window of 9x9, which does "
                                          "not fit into an input of 8x6x3"));
  std::get<op::Convolution>(network.nodes[0].op).window.stride = 0;
  EXPECT_THAT(ErrorOf(network), HasSubstr("stride 0"));
  network = MakeSmallNetwork();
  network.num_classes = 6;
  EXPECT_THAT(ErrorOf(network), HasSubstr("node classes (convolution) does not give one score"));
}

TEST(NetworkSpecTest, OperatorsGiveTheShapesThatTheyAreFor) {
  const FeatureShape map = {8, 6, 4}, other = {8, 6, 3}, gate = {1, 1, 4};
  EXPECT_EQ(*OutputShape(op::Multiply(), {map, gate}), map);
  EXPECT_EQ(*OutputShape(op::Concat(), {map, other, map}), (FeatureShape{8, 6, 11}));
  EXPECT_EQ(*OutputShape(op::MaxPool{SameWindow(map, 3, 2)}, {map}), (FeatureShape{4, 3, 4}));
  EXPECT_EQ(*OutputShape(op::AveragePool{{2, 2, {}}}, {other}), (FeatureShape{4, 3, 3}));
  EXPECT_EQ(*OutputShape(op::Upsample{3}, {map}), (FeatureShape{24, 18, 4}));
  EXPECT_EQ(*OutputShape(op::RepeatChannels{3}, {map}), (FeatureShape{8, 6, 12}));
  EXPECT_EQ(*OutputShape(op::GlobalAveragePool(), {map}), gate);
}

TEST(NetworkSpecTest, OperatorsRefuseInputsThatDoNotFit) {
  const FeatureShape map = {8, 6, 4};
  const auto error = [](const Operator& op, const std::vector<FeatureShape>& inputs) {
    return std::string(OutputShape(op, inputs).status().message());
  };
  EXPECT_THAT(error(op::Multiply(), {map, map}),
              HasSubstr("multiplies values of 8x6x4 by factors of 8x6x4"));
  EXPECT_THAT(error(op::Concat(), {map, {8, 5, 4}}), HasSubstr("joins values of 8x6x4 and 8x5x4"));
  EXPECT_THAT(error(op::Concat(), {map}), HasSubstr("has 1 inputs, expected at least 2"));
  EXPECT_THAT(error(op::Add(), {map, map, map}), HasSubstr("has 3 inputs, expected 2"));
  EXPECT_THAT(error(op::Upsample{0}, {map}), HasSubstr("has the factor 0"));
  EXPECT_THAT(error(op::RepeatChannels{0}, {map}), HasSubstr("repeats 0 times"));
  EXPECT_THAT(error(op::Dropout{0.0f}, {map}), HasSubstr("keeps with probability 0"));
  // A window of padding alone would have no largest element.
  EXPECT_THAT(error(op::MaxPool{{2, 1, {0, 2, 0, 0}}}, {map}), HasSubstr("has padding of 2"));
}

TEST(NetworkSpecTest, RefusesVariablesThatDoNotFit) {
  NetworkSpec network = MakeSmallNetwork();
  network.variables[5].shape = {1, 1, 3, 4};
  EXPECT_THAT(ErrorOf(network), HasSubstr("node b (convolution) reads b/weights of shape "
                                          "[1, 1, 3, 4], expected [1, 1, 4, 4]"));
  network = MakeSmallNetwork();
  std::get<op::Convolution>(network.nodes[3].op).weights = 12;
  EXPECT_THAT(ErrorOf(network), HasSubstr("names a variable that does not exist"));
  std::get<op::Convolution>(network.nodes[3].op).weights = op::kNoVariable;
  EXPECT_THAT(ErrorOf(network), HasSubstr("node b (convolution) has no weights"));
  network = MakeSmallNetwork();
  std::get<op::BatchNorm>(network.nodes[4].op).moving_mean = op::kNoVariable;
  EXPECT_THAT(ErrorOf(network), HasSubstr("b/BatchNorm (batch norm) has no moving statistics"));
}

TEST(NetworkSpecTest, DepthwiseWeightsMayBeThoseOfRepeatedChannels) {
  NetworkBuilder builder("Small", {8, 6, 3}, /*freeze_batch_norm=*/false);
  builder.network().num_classes = 6;
  LayerRequest layer{"a", Node::kImage, 5, 1};
  layer.repetitions = 2;
  const int a = builder.AddNormalizedDepthwise(layer, SlimHyperparams());
  builder.AddNode("pool", op::GlobalAveragePool(), {a});
  NetworkSpec network = std::move(builder).Finish();
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  EXPECT_EQ(network.variables[0].name, "a/depthwise_weights");
  EXPECT_THAT(network.variables[0].shape, ElementsAre(5, 5, 3, 2));
  EXPECT_EQ(network.nodes[0].name, "a/repeat");
  network.variables[0].shape = {5, 5, 6, 1};
  EXPECT_EQ(CheckNetwork(network), absl::OkStatus());
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{5, 5, 2, 2}, {5, 5, 6, 2}, {5, 5, 1, 12}, {5, 5, 6}}) {
    network.variables[0].shape = shape;
    EXPECT_THAT(ErrorOf(network), HasSubstr("node a (depthwise convolution) reads"));
  }
}

TEST(NetworkSpecTest, NodesMayShareWeightsButNotBatchNorms) {
  NetworkSpec network = MakeSmallNetwork();
  std::vector<op::BatchNorm*> norms;
  for (Node& node : network.nodes) {
    if (auto* const norm = std::get_if<op::BatchNorm>(&node.op)) norms.push_back(norm);
  }
  ASSERT_EQ(norms.size(), 2u);
  norms[1]->beta = norms[0]->beta;
  EXPECT_THAT(ErrorOf(network), HasSubstr("/beta with another batch norm"));
}

TEST(NetworkSpecTest, RefusesNodesThatNobodyReadsAndNamesThatAppearTwice) {
  NetworkSpec network = MakeSmallNetwork();
  network.nodes[5].inputs = {2, 2};
  EXPECT_THAT(ErrorOf(network),
              HasSubstr("node b/BatchNorm (batch norm) is neither read nor an output"));
  network = MakeSmallNetwork();
  network.nodes[6].name = "b";
  EXPECT_THAT(ErrorOf(network), HasSubstr("node b (global average pool) has the name of another"));
}

TEST(NetworkSpecTest, TheInitialStatisticsCountWhereNothingCorrectsThem) {
  NetworkSpec network = MakeSmallNetwork();
  auto& a = std::get<op::BatchNorm>(network.nodes[1].op);
  auto& b = std::get<op::BatchNorm>(network.nodes[4].op);
  a.decay = 0.9f;
  b.decay = 0.5f;
  EXPECT_NEAR(InitialStatisticsShare(network, 3), 0.729, 1e-6);
  a.bias_corrected = true;
  EXPECT_NEAR(InitialStatisticsShare(network, 3), 0.125, 1e-6);
  b.frozen = true;
  EXPECT_EQ(InitialStatisticsShare(network, 3), 0.0);
}

TEST(NetworkSpecTest, RefusesHeadsThatDoNotFitTheirNodes) {
  NetworkSpec network = MakeSmallNetwork();
  network.detection.emplace().num_classes = 4;
  network.detection->heads = {{5, 7, 4, 3, 1}};
  EXPECT_THAT(ErrorOf(network), HasSubstr("node classes (convolution) gives 1x1x5 to a detection "
                                          "head that reads 4x3x5"));
  network.detection->heads[0].box_node = 8;
  EXPECT_THAT(ErrorOf(network), HasSubstr("names a node that does not exist"));
}

}  // namespace
}  // namespace pushpull
