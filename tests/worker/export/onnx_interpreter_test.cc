// The interpreter computes what ONNX defines, and refuses everything else.
#include "tests/testkit/onnx/onnx_interpreter.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "worker/export/onnx_graph.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Ints = std::vector<int64_t>;

OnnxTensor Scalar(float value) { return FloatTensor({}, {value}); }
OnnxTensor Row(const std::vector<float>& values) {
  return FloatTensor({static_cast<int64_t>(values.size())}, values);
}
// 1, 2, 3, ... in a tensor.
OnnxTensor Count(const OnnxShape& shape) {
  OnnxTensor tensor = MakeTensor(kOnnxFloat32, shape);
  for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = static_cast<double>(i) + 1.0;
  return tensor;
}

onnx::NodeProto MakeNode(const std::string& operation, size_t inputs,
                         const std::vector<OnnxAttribute>& attributes) {
  OnnxGraph graph("test");
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs; ++i) {
    names.push_back(graph.AddInput("in" + std::to_string(i), onnx::TensorProto::FLOAT, {}));
  }
  graph.AddNode(operation, "out", names, attributes);
  return std::move(graph).Finish().node(0);
}

// Computes one node. Inputs of type UNDEFINED are absent.
absl::StatusOr<OnnxTensor> ComputeNode(const std::string& operation,
                                       const std::vector<OnnxTensor>& inputs,
                                       const std::vector<OnnxAttribute>& attributes = {},
                                       const std::string& output = "out") {
  onnx::GraphProto graph;
  onnx::NodeProto& node = *graph.add_node() = MakeNode(operation, inputs.size(), attributes);
  if (operation == "TopK") node.add_output("indices");
  OnnxValues given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].type == onnx::TensorProto::UNDEFINED) {
      node.set_input(static_cast<int>(i), "");
    } else {
      given[node.input(static_cast<int>(i))] = inputs[i];
    }
  }
  auto values = EvaluateOnnx(graph, given, {output});
  if (!values.ok()) return values.status();
  return values->at(output);
}

const OnnxTensor kAbsent = {onnx::TensorProto::UNDEFINED, {}, {}};

// Expects the shape and the values.
void ExpectValues(const absl::StatusOr<OnnxTensor>& out, const OnnxShape& shape,
                  const std::vector<double>& values) {
  ASSERT_TRUE(out.ok()) << out.status();
  EXPECT_EQ(out->shape, shape);
  EXPECT_THAT(out->values, ElementsAreArray(values));
}

void ExpectError(const absl::StatusOr<OnnxTensor>& out, const std::string& message) {
  EXPECT_THAT(std::string(out.status().message()), HasSubstr(message));
}

TEST(OnnxInterpreterTest, OperandsHaveTheirOrder) {
  ExpectValues(ComputeNode("Sub", {Row({5, 7}), Scalar(2)}), {2}, {3, 5});
  ExpectValues(ComputeNode("Div", {Row({1, 8}), Scalar(4)}), {2}, {0.25, 2});
  ExpectValues(ComputeNode("Div", {IntTensor({7, -7}), IntTensor({2, 2})}), {2}, {3, -3});
  ExpectValues(ComputeNode("Mod", {IntTensor({7, -7}), IntTensor({4, 4})}), {2}, {3, 1});
  ExpectValues(ComputeNode("Greater", {Row({1, 2, 3}), Scalar(2)}), {3}, {0, 0, 1});
  ExpectValues(ComputeNode("LessOrEqual", {Row({1, 2, 3}), Scalar(2)}), {3}, {1, 1, 0});
  ExpectValues(ComputeNode("Clip", {Row({-1, 2, 9}), Scalar(0), Scalar(6)}), {3}, {0, 2, 6});
  ExpectValues(ComputeNode("Max", {Row({1, 5}), Row({4, 2}), Row({3, 3})}), {2}, {4, 5});
  ExpectValues(ComputeNode("Where", {{kOnnxBool, {2}, {1, 0}}, Row({1, 2}), Scalar(9)}), {2},
               {1, 9});
}

TEST(OnnxInterpreterTest, BroadcastsAsNumPy) {
  ExpectValues(ComputeNode("Add", {Count({2, 1, 3}), FloatTensor({2, 1}, {10, 20})}), {2, 2, 3},
               {11, 12, 13, 21, 22, 23, 14, 15, 16, 24, 25, 26});
  ExpectValues(ComputeNode("Expand", {Row({1, 2}), IntTensor({2, 1})}), {2, 2}, {1, 2, 1, 2});
  ExpectError(ComputeNode("Add", {Count({2, 3}), Count({2})}), "[2,3] and [2] do not broadcast");
}

TEST(OnnxInterpreterTest, RoundsEveryResultToFloat32) {
  ExpectValues(ComputeNode("Add", {Scalar(16777216.0f), Scalar(1.0f)}), {}, {16777216.0});
  ExpectValues(ComputeNode("Div", {Scalar(1.0f), Scalar(3.0f)}), {}, {1.0f / 3.0f});
  ExpectValues(ComputeNode("Round", {Row({0.5f, 1.5f, 2.5f, -0.5f})}), {4}, {0, 2, 2, -0.0});
  ExpectValues(ComputeNode("Exp", {Scalar(100.0f)}), {}, {std::numeric_limits<double>::infinity()});
}

TEST(OnnxInterpreterTest, MovesElements) {
  ExpectValues(ComputeNode("Transpose", {Count({1, 2, 3})}, {{"perm", Ints{0, 2, 1}}}), {1, 3, 2},
               {1, 4, 2, 5, 3, 6});
  ExpectValues(ComputeNode("Concat", {Count({2, 1}), Count({2, 2})}, {{"axis", int64_t{1}}}),
               {2, 3}, {1, 1, 2, 2, 3, 4});
  ExpectValues(
      ComputeNode("Slice", {Count({2, 3}), IntTensor({1}), IntTensor({3}), IntTensor({1})}), {2, 2},
      {2, 3, 5, 6});
  ExpectValues(ComputeNode("Pad", {Count({1, 2}), IntTensor({1, 0, 0, 2}), Scalar(9)}), {2, 4},
               {9, 9, 9, 9, 1, 2, 9, 9});
  ExpectValues(ComputeNode("Reshape", {Count({2, 3, 2}), IntTensor({0, -1})}), {2, 6},
               Count({2, 6}).values);
  ExpectValues(ComputeNode("Flatten", {Count({2, 3, 1, 1})}, {{"axis", int64_t{1}}}), {2, 3},
               Count({2, 3}).values);
  ExpectValues(ComputeNode("Unsqueeze", {Count({2, 3}), IntTensor({2})}), {2, 3, 1},
               Count({6}).values);
  ExpectValues(ComputeNode("Cast", {Row({2.7f, -2.7f})}, {{"to", int64_t{kOnnxInt64}}}), {2},
               {2, -2});
}

TEST(OnnxInterpreterTest, ReducesAxes) {
  const std::vector<OnnxAttribute> axis_1 = {{"axes", Ints{1}}, {"keepdims", int64_t{1}}};
  ExpectValues(ComputeNode("ReduceMax", {Count({2, 3})}, axis_1), {2, 1}, {3, 6});
  ExpectValues(ComputeNode("ReduceMin", {Count({2, 3})}, axis_1), {2, 1}, {1, 4});
  ExpectValues(
      ComputeNode("ReduceSum", {Count({2, 3}), IntTensor({1})}, {{"keepdims", int64_t{0}}}), {2},
      {6, 15});
}

std::vector<OnnxAttribute> WindowAttributes(const Ints& kernel, const Ints& pads,
                                            const Ints& strides) {
  return {{"kernel_shape", kernel}, {"pads", pads}, {"strides", strides}};
}

TEST(OnnxInterpreterTest, ConvolvesWithGroupsAndUnequalPads) {
  std::vector<OnnxAttribute> attributes = WindowAttributes({1, 2}, {0, 1, 0, 0}, {1, 2});
  attributes.push_back({"group", int64_t{1}});
  // Along x the padded rows are 0 1 2 3 and 0 4 5 6; the second channel has 10 times their values.
  OnnxTensor in = Count({1, 2, 2, 3});
  for (int i = 0; i < 6; ++i) in.values[6 + i] = 10.0 * in.values[i];
  ExpectValues(
      ComputeNode("Conv", {in, FloatTensor({1, 2, 1, 2}, {1, 2, 1, 0}), Row({0.5f})}, attributes),
      {1, 1, 2, 2}, {2.5, 28.5, 8.5, 67.5});
  attributes.back() = {"group", int64_t{2}};
  ExpectValues(ComputeNode("Conv", {in, FloatTensor({2, 1, 1, 2}, {1, 2, 1, 0})}, attributes),
               {1, 2, 2, 2}, {2, 8, 8, 17, 0, 20, 0, 50});
  ExpectError(
      ComputeNode("Conv", {in, FloatTensor({2, 2, 1, 2}, {1, 2, 1, 0, 1, 2, 1, 0})}, attributes),
      "2 groups");
}

TEST(OnnxInterpreterTest, PoolsLeaveThePaddingOut) {
  std::vector<OnnxAttribute> attributes = WindowAttributes({2, 2}, {0, 0, 1, 1}, {2, 2});
  const OnnxTensor in = FloatTensor({1, 1, 3, 3}, {-1, -2, -3, -4, -5, -6, -7, -8, -9});
  ExpectValues(ComputeNode("MaxPool", {in}, attributes), {1, 1, 2, 2}, {-1, -3, -7, -9});
  attributes.push_back({"count_include_pad", int64_t{0}});
  ExpectValues(ComputeNode("AveragePool", {in}, attributes), {1, 1, 2, 2}, {-3, -4.5, -7.5, -9});
  ExpectValues(ComputeNode("GlobalAveragePool", {Count({1, 2, 1, 4})}), {1, 2, 1, 1}, {2.5, 6.5});
}

std::vector<OnnxAttribute> ResizeAttributes(const std::string& mode) {
  std::vector<OnnxAttribute> attributes = {
      {"coordinate_transformation_mode", std::string("asymmetric")}, {"mode", mode}};
  if (mode == "nearest") attributes.push_back({"nearest_mode", std::string("floor")});
  return attributes;
}

TEST(OnnxInterpreterTest, ResizesFromTheUpperLeftCorner) {
  const OnnxTensor in = FloatTensor({1, 1, 2, 2}, {0, 8, 16, 24});
  ExpectValues(ComputeNode("Resize", {in, kAbsent, kAbsent, IntTensor({1, 1, 2, 4})},
                           ResizeAttributes("linear")),
               {1, 1, 2, 4}, {0, 4, 8, 8, 16, 20, 24, 24});
  ExpectValues(ComputeNode("Resize",
                           {FloatTensor({1, 1, 3, 1}, {0, 6, 12}), kAbsent, kAbsent,
                            IntTensor({1, 1, 2, 1})},
                           ResizeAttributes("linear")),
               {1, 1, 2, 1}, {0, 9});
  ExpectValues(ComputeNode("Resize", {in, kAbsent, Row({1, 1, 1, 2})}, ResizeAttributes("nearest")),
               {1, 1, 2, 4}, {0, 0, 8, 8, 16, 16, 24, 24});
  ExpectError(ComputeNode("Resize", {in, kAbsent, Row({1, 1, 1, 2})}, ResizeAttributes("cubic")),
              "cubic");
}

TEST(OnnxInterpreterTest, Activates) {
  ExpectValues(ComputeNode("LeakyRelu", {Row({-4, 4})}, {{"alpha", 0.25f}}), {2}, {-1, 4});
  ExpectValues(ComputeNode("HardSigmoid", {Row({-9, 1, 9})}, {{"alpha", 0.25f}, {"beta", 0.5f}}),
               {3}, {0, 0.75, 1});
  ExpectValues(ComputeNode("Sigmoid", {Row({0, 1000})}), {2}, {0.5, 1});
  ExpectValues(
      ComputeNode("Softmax", {FloatTensor({2, 2}, {3, 3, 1000, 0})}, {{"axis", int64_t{-1}}}),
      {2, 2}, {0.5, 0.5, 1, 0});
}

TEST(OnnxInterpreterTest, SelectsAndScatters) {
  const OnnxTensor scores = FloatTensor({2, 3}, {1, 5, 5, 9, 7, 8});
  ExpectValues(ComputeNode("TopK", {scores, IntTensor({2})}, {{"axis", int64_t{1}}}), {2, 2},
               {5, 5, 9, 8});
  ExpectValues(ComputeNode("TopK", {scores, IntTensor({2})}, {{"axis", int64_t{1}}}, "indices"),
               {2, 2}, {1, 2, 0, 2});
  const OnnxTensor places = {kOnnxInt64, {2, 2}, {1, 0, 0, 2}};
  ExpectValues(ComputeNode("GatherND", {scores, places}), {2}, {9, 5});
  ExpectValues(ComputeNode("ScatterND", {scores, places, Row({-1, -2})}), {2, 3},
               {1, 5, -2, -1, 7, 8});
  const OnnxTensor rows = {kOnnxInt64, {2, 2, 1}, {1, 0, 1, 1}};
  ExpectValues(ComputeNode("GatherND", {Count({2, 2, 2}), rows}, {{"batch_dims", int64_t{1}}}),
               {2, 2, 2}, {3, 4, 1, 2, 7, 8, 7, 8});
  ExpectError(ComputeNode("GatherND", {scores, {kOnnxInt64, {1, 2}, {0, 3}}}),
              "index 3 along axis 1");
}

// Three boxes of equal size in a column, each of which overlaps the next by a half: their IoU is a
// third. The fourth is the first again with its corners exchanged.
TEST(OnnxInterpreterTest, SuppressesByClassAndImage) {
  const std::vector<float> boxes = {0, 0, 2, 1, 1, 0, 3, 1, 2, 0, 4, 1, 2, 1, 0, 0};
  const auto kept = [&](const std::vector<float>& scores, int64_t most, float iou, float least) {
    const int64_t classes = static_cast<int64_t>(scores.size()) / 4;
    return ComputeNode("NonMaxSuppression", {FloatTensor({1, 4, 4}, boxes),
                                             FloatTensor({1, classes, 4}, scores),
                                             {kOnnxInt64, {}, {static_cast<double>(most)}},
                                             Scalar(iou),
                                             Scalar(least)});
  };
  ExpectValues(kept({1, 2, 1, 1}, 9, 0.3f, 0), {1, 3}, {0, 0, 1});
  ExpectValues(kept({1, 2, 1, 1}, 9, 0.4f, 0), {3, 3}, {0, 0, 1, 0, 0, 0, 0, 0, 2});
  ExpectValues(kept({1, 2, 1, 1, 0, 0, 0, 3}, 1, 0.4f, 1), {2, 3}, {0, 0, 1, 0, 1, 3});
  ExpectValues(kept({1, 1, 1, 1}, 9, 0.4f, 1), {0, 3}, {});
}

TEST(OnnxInterpreterTest, RefusesNodesThatItDoesNotKnow) {
  ExpectError(ComputeNode("Gemm", {Row({1})}), "there is no operator Gemm");
  ExpectError(ComputeNode("Relu", {Row({1}), Row({1})}), "Relu does not have 2 inputs");
  ExpectError(ComputeNode("Softmax", {Row({1})}), "Softmax lacks the attribute axis");
  ExpectError(ComputeNode("Softmax", {Row({1})}, {{"axis", 1.0f}}), "no attribute axis of type");
  ExpectError(ComputeNode("Relu", {Row({1})}, {{"alpha", 1.0f}}), "Relu has no attribute alpha");
  ExpectError(ComputeNode("Relu", {IntTensor({1})}), "expected float32, the input is int64[1]");
  ExpectError(ComputeNode("Add", {Row({1}), IntTensor({1})}),
              "expected float32, the input is int64[1]");
  ExpectError(ComputeNode("Relu", {kAbsent}), "input 0 is absent");
  ExpectError(ComputeNode("Slice", {Count({3}), IntTensor({0}), IntTensor({4})}),
              "takes 0 to 4 of the 3");
  ExpectError(ComputeNode("Transpose", {Count({1, 2})}, {{"perm", Ints{0, 0}}}), "each axis once");
  ExpectError(ComputeNode("Mod", {IntTensor({1}), IntTensor({0})}), "computes no integer");
  ExpectError(ComputeNode("Mod", {Scalar(3), Scalar(2)}), "int64");
  ExpectError(ComputeNode("Div", {IntTensor({1}), IntTensor({0})}), "computes no integer");
}

TEST(OnnxInterpreterTest, ChecksTheGraph) {
  OnnxGraph builder("test");
  builder.AddInput("in", onnx::TensorProto::FLOAT, {"N", int64_t{2}});
  builder.AddNode("Relu", "middle", {"in"});
  builder.AddNode("Abs", "out", {"middle"});
  builder.AddOutput("out", onnx::TensorProto::FLOAT, {"N", int64_t{2}});
  onnx::ModelProto model;
  *model.mutable_graph() = std::move(builder).Finish();
  const auto message = [](const onnx::ModelProto& changed, const OnnxValues& inputs) {
    return std::string(RunOnnx(changed, inputs).status().message());
  };
  const OnnxValues inputs = {{"in", Count({3, 2})}};
  EXPECT_THAT(message(model, inputs), HasSubstr("opset 13"));
  model.add_opset_import()->set_version(13);
  ASSERT_TRUE(RunOnnx(model, inputs).ok()) << RunOnnx(model, inputs).status();
  EXPECT_THAT(message(model, {}), HasSubstr("1 inputs"));
  EXPECT_THAT(message(model, {{"in", Count({2, 3})}}), HasSubstr("in is float32[2,3]"));
  onnx::ModelProto changed = model;
  changed.mutable_graph()->mutable_node(0)->set_input(0, "elsewhere");
  EXPECT_THAT(message(changed, inputs), HasSubstr("nothing before it makes elsewhere"));
  changed = model;
  changed.mutable_graph()->mutable_node()->SwapElements(0, 1);
  EXPECT_THAT(message(changed, inputs), HasSubstr("nothing before it makes middle"));
  changed = model;
  *changed.mutable_graph()->add_node() = changed.graph().node(0);
  changed.mutable_graph()->mutable_node()->SwapElements(1, 2);
  EXPECT_THAT(message(changed, inputs), HasSubstr("two values"));
  changed = model;
  changed.mutable_graph()->mutable_node(0)->set_op_type("Shape");
  EXPECT_THAT(message(changed, inputs), HasSubstr("expected float32"));
  changed.mutable_graph()->mutable_node(1)->set_op_type("Identity");
  EXPECT_THAT(message(changed, inputs), HasSubstr("out is int64[2]"));
  // Nodes that the wanted values do not need are not computed.
  EXPECT_TRUE(EvaluateOnnx(model.graph(), {{"middle", Count({1})}}, {"out"}).ok());
}

}  // namespace
}  // namespace pushpull
