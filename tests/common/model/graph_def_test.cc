#include "common/model/graph_def.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/config/model_types.h"
#include "common/model/classifier.h"
#include "common/model/model_layout.h"
#include "tests/testkit/optimizer_test_util.h"
#include "tests/testkit/ssd_test_config.h"

namespace pushpull {
namespace {

using tensorflow::AttrValue;
using tensorflow::GraphDef;
using tensorflow::NodeDef;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// Returns the node as "name = Op(inputs) [output shape]".
std::string Text(const NodeDef& node) {
  std::vector<int64_t> shape;
  const AttrValue& shapes = node.attr().at("_output_shapes");
  EXPECT_EQ(shapes.list().shape_size(), 1) << node.name();
  for (const auto& dimension : shapes.list().shape(0).dim()) shape.push_back(dimension.size());
  return absl::StrCat(node.name(), " = ", node.op(), "(", absl::StrJoin(node.input(), ", "), ") [",
                      absl::StrJoin(shape, ", "), "]");
}

std::vector<std::string> Texts(const GraphDef& graph) {
  std::vector<std::string> texts;
  for (const NodeDef& node : graph.node()) texts.push_back(Text(node));
  return texts;
}

NetworkSpec Network(FeatureShape input, std::vector<Node> nodes) {
  NetworkSpec network;
  network.name = "N";
  network.input = input;
  network.nodes = std::move(nodes);
  return network;
}

AttrValue Attribute(const NodeDef& node, const std::string& name) {
  const auto found = node.attr().find(name);
  return found == node.attr().end() ? AttrValue() : found->second;
}

std::vector<int64_t> Integers(const NodeDef& node, const std::string& name) {
  const AttrValue value = Attribute(node, name);
  return {value.list().i().begin(), value.list().i().end()};
}

TEST(GraphDefTest, WritesLayersWithTheirVariables) {
  NetworkSpec network = Network(
      {8, 8, 3},
      {{"N/Conv", op::Convolution{SameWindow({8, 8, 3}, 3, 2), 0, 1, 4}, {Node::kImage}, {4, 4, 4}},
       {"N/dw", op::DepthwiseConvolution{{3, 1, {}}, 2}, {0}, {2, 2, 4}},
       {"N/dw/BatchNorm",
        op::BatchNorm{
            .epsilon = 0.5f, .frozen = true, .beta = 3, .moving_mean = 4, .moving_variance = 5},
        {1},
        {2, 2, 4}},
       {"N/dw/Relu6", op::Activation{ActivationFunction::kRelu6}, {2}, {2, 2, 4}}});
  network.variables = {MakeVariable("N/Conv/weights", {3, 3, 3, 4}),
                       MakeVariable("N/Conv/biases", {4}),
                       MakeVariable("N/dw/depthwise_weights", {3, 3, 4, 1}),
                       MakeVariable("N/dw/BatchNorm/beta", {4}),
                       MakeVariable("N/dw/BatchNorm/moving_mean", {4}),
                       MakeVariable("N/dw/BatchNorm/moving_variance", {4})};
  const GraphDef graph = MakeGraphDef(network);
  EXPECT_THAT(
      Texts(graph),
      ElementsAre(
          "image = Placeholder() [-1, 8, 8, 3]", "N/Conv/weights = VariableV2() [3, 3, 3, 4]",
          "N/Conv/biases = VariableV2() [4]", "N/dw/depthwise_weights = VariableV2() [3, 3, 4, 1]",
          "N/dw/BatchNorm/beta = VariableV2() [4]", "N/dw/BatchNorm/moving_mean = VariableV2() [4]",
          "N/dw/BatchNorm/moving_variance = VariableV2() [4]",
          "N/Conv/Conv2D = Conv2D(image, N/Conv/weights) [-1, 4, 4, 4]",
          "N/Conv/BiasAdd = BiasAdd(N/Conv/Conv2D, N/Conv/biases) [-1, 4, 4, 4]",
          "N/dw/DepthwiseConv2dNative = DepthwiseConv2dNative(N/Conv/BiasAdd, "
          "N/dw/depthwise_weights) [-1, 2, 2, 4]",
          "N/dw/BatchNorm/FusedBatchNormV3 = FusedBatchNormV3(N/dw/DepthwiseConv2dNative, "
          "N/dw/BatchNorm/beta, N/dw/BatchNorm/moving_mean, "
          "N/dw/BatchNorm/moving_variance) [-1, 2, 2, 4]",
          "N/dw/Relu6 = Relu6(N/dw/BatchNorm/FusedBatchNormV3) [-1, 2, 2, 4]"));
  EXPECT_EQ(Attribute(graph.node(1), "dtype").type(), tensorflow::DT_FLOAT);
  EXPECT_EQ(Attribute(graph.node(1), "shape").shape().dim(3).size(), 4);
  EXPECT_THAT(Integers(graph.node(7), "strides"), ElementsAre(1, 2, 2, 1));
  EXPECT_EQ(Attribute(graph.node(7), "padding").s(), "SAME");
  EXPECT_EQ(Attribute(graph.node(9), "padding").s(), "VALID");
  EXPECT_EQ(Attribute(graph.node(10), "epsilon").f(), 0.5f);
  EXPECT_FALSE(Attribute(graph.node(10), "is_training").b());
  EXPECT_EQ(Attribute(graph.node(10), "is_training").value_case(), AttrValue::kB);
}

TEST(GraphDefTest, WritesOperatorsWithoutVariables) {
  const GraphDef graph = MakeGraphDef(Network(
      {8, 8, 3}, {{"max", op::MaxPool{{3, 2, {1, 1, 0, 1}}}, {Node::kImage}, {4, 4, 3}},
                  {"mean", op::AveragePool{{2, 2, {}}}, {Node::kImage}, {4, 4, 3}},
                  {"sum", op::Add{}, {0, 1}, {4, 4, 3}},
                  {"leaky", op::Activation{ActivationFunction::kLeakyRelu, 0.25f}, {2}, {4, 4, 3}},
                  {"global", op::GlobalAveragePool{}, {3}, {1, 1, 3}},
                  {"product", op::Multiply{}, {3, 4}, {4, 4, 3}},
                  {"up", op::Upsample{2}, {5}, {8, 8, 3}},
                  {"joined", op::Concat{}, {6, Node::kImage}, {8, 8, 6}},
                  {"dropped", op::Dropout{0.75f}, {7}, {8, 8, 6}}}));
  EXPECT_THAT(
      Texts(graph),
      ElementsAre("image = Placeholder() [-1, 8, 8, 3]", "max = MaxPool(image) [-1, 4, 4, 3]",
                  "mean = AvgPool(image) [-1, 4, 4, 3]", "sum = AddV2(max, mean) [-1, 4, 4, 3]",
                  "leaky = LeakyRelu(sum) [-1, 4, 4, 3]", "global = Mean(leaky) [-1, 1, 1, 3]",
                  "product = Mul(leaky, global) [-1, 4, 4, 3]",
                  "up = ResizeNearestNeighbor(product) [-1, 8, 8, 3]",
                  "joined = ConcatV2(up, image) [-1, 8, 8, 6]",
                  "dropped = Dropout(joined) [-1, 8, 8, 6]"));
  EXPECT_THAT(Integers(graph.node(1), "ksize"), ElementsAre(1, 3, 3, 1));
  EXPECT_EQ(Attribute(graph.node(1), "padding").s(), "EXPLICIT");
  EXPECT_THAT(Integers(graph.node(1), "explicit_paddings"), ElementsAre(0, 0, 1, 1, 0, 1, 0, 0));
  EXPECT_EQ(Attribute(graph.node(4), "alpha").f(), 0.25f);
  EXPECT_TRUE(Attribute(graph.node(5), "keep_dims").b());
  EXPECT_EQ(Attribute(graph.node(9), "rate").f(), 0.25f);
}

TEST(GraphDefTest, WritesSharedVariablesOnce) {
  NetworkSpec network =
      Network({4, 4, 2},
              {{"a", op::Convolution{{1, 1, {}}, 0, op::kNoVariable, 2}, {Node::kImage}, {4, 4, 2}},
               {"b", op::Convolution{{1, 1, {}}, 0, op::kNoVariable, 2}, {0}, {4, 4, 2}}});
  network.variables = {MakeVariable("a/weights", {1, 1, 2, 2})};
  EXPECT_THAT(
      Texts(MakeGraphDef(network)),
      ElementsAre("image = Placeholder() [-1, 4, 4, 2]", "a/weights = VariableV2() [1, 1, 2, 2]",
                  "a/Conv2D = Conv2D(image, a/weights) [-1, 4, 4, 2]",
                  "b/Conv2D = Conv2D(a/Conv2D, a/weights) [-1, 4, 4, 2]"));
}

// All networks that a config can name.
std::map<std::string, NetworkSpec> AllNetworks() {
  std::map<std::string, NetworkSpec> networks;
  for (const absl::string_view type : ClassifierTypeNames()) {
    config::DetectionModel model;
    model.mutable_classifier()->set_num_classes(10);
    model.mutable_classifier()->mutable_image_resizer()->mutable_fixed_shape_resizer();
    model.mutable_classifier()->mutable_feature_extractor()->set_type(std::string(type));
    networks[std::string(type)] = BuildNetworkSpec(model);
  }
  for (const absl::string_view name : SsdTypeNames()) {
    networks[std::string(name)] =
        BuildNetworkSpec(MakeSsdTestConfig(std::string(name), SsdTestSettings(name, 320)).model());
  }
  return networks;
}

TEST(GraphDefTest, EveryNetworkHasEachNodeOnceAndInOrder) {
  for (const auto& [type, network] : AllNetworks()) {
    SCOPED_TRACE(type);
    GraphDef graph;
    ASSERT_TRUE(graph.ParseFromString(MakeGraphDef(network).SerializeAsString()));
    std::map<std::string, const NodeDef*> nodes;
    std::set<std::string> read;
    size_t biases = 0;
    for (const NodeDef& node : graph.node()) {
      // The names that TensorFlow allows.
      EXPECT_THAT(node.name(), MatchesRegex("[A-Za-z0-9.][A-Za-z0-9_.\\\\/>-]*"));
      for (const std::string& input : node.input()) {
        EXPECT_TRUE(nodes.contains(input)) << node.name() << " reads " << input;
        read.insert(input);
      }
      EXPECT_TRUE(nodes.emplace(node.name(), &node).second) << node.name() << " appears twice";
      EXPECT_EQ(Attribute(node, "_output_shapes").list().shape_size(), 1) << node.name();
      if (node.op() == "BiasAdd") ++biases;
    }
    EXPECT_EQ(graph.node_size(), 1 + network.variables.size() + network.nodes.size() + biases);
    for (const VariableSpec& variable : network.variables) {
      ASSERT_TRUE(nodes.contains(variable.name)) << variable.name;
      EXPECT_EQ(nodes[variable.name]->op(), "VariableV2");
      EXPECT_TRUE(read.contains(variable.name)) << "nothing reads " << variable.name;
    }
    std::set<std::string> names;
    for (const Node& node : network.nodes) names.insert(node.name);
    for (const Node& node : network.nodes) {
      // The operator of a node has its name, or is the only one right below it that is no other
      // node.
      std::vector<const NodeDef*> found;
      for (const NodeDef& candidate : graph.node()) {
        if (candidate.name() == node.name ||
            (candidate.name() == absl::StrCat(node.name, "/", candidate.op()) &&
             candidate.op() != "BiasAdd" && !names.contains(candidate.name()))) {
          found.push_back(&candidate);
        }
      }
      ASSERT_EQ(found.size(), 1u) << node.name;
      EXPECT_THAT(Text(*found[0]),
                  HasSubstr(absl::StrCat("[-1, ", node.shape.height, ", ", node.shape.width, ", ",
                                         node.shape.channels, "]")));
    }
    // TensorBoard draws a group for each scope, so no operator may have the name of one.
    for (const auto& [name, node] : nodes) {
      for (size_t slash = name.find('/'); slash != std::string::npos;
           slash = name.find('/', slash + 1)) {
        EXPECT_FALSE(nodes.contains(name.substr(0, slash))) << name;
      }
    }
  }
}

}  // namespace
}  // namespace pushpull
