#include "common/model/graph_def.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace pushpull {
namespace {

using tensorflow::NodeDef;

constexpr char kImageName[] = "image";
constexpr int64_t kUnknownBatch = -1;

void FillShape(absl::Span<const int64_t> sizes, tensorflow::TensorShapeProto* shape) {
  for (const int64_t size : sizes) shape->add_dim()->set_size(size);
}

void SetOutputShape(absl::Span<const int64_t> sizes, NodeDef* node) {
  FillShape(sizes, (*node->mutable_attr())["_output_shapes"].mutable_list()->add_shape());
}

std::vector<int64_t> BatchOf(const FeatureShape& shape) {
  return {kUnknownBatch, shape.height, shape.width, shape.channels};
}

void SetIntegers(const std::string& name, absl::Span<const int64_t> values, NodeDef* node) {
  tensorflow::AttrValue::ListValue* const list = (*node->mutable_attr())[name].mutable_list();
  for (const int64_t value : values) list->add_i(value);
}

// Sets TensorFlow's strides and padding, for values of [N, H, W, C].
void SetWindow(const Window& window, const FeatureShape& input, NodeDef* node) {
  SetIntegers("strides", {1, window.stride, window.stride, 1}, node);
  const SpatialPadding& pad = window.padding;
  std::string padding = "EXPLICIT";
  if (pad == SpatialPadding()) {
    padding = "VALID";
  } else if (pad == SameWindow(input, window.kernel, window.stride).padding) {
    padding = "SAME";
  } else {
    SetIntegers("explicit_paddings", {0, 0, pad.top, pad.bottom, pad.left, pad.right, 0, 0}, node);
  }
  (*node->mutable_attr())["padding"].set_s(padding);
}

// Sets the operator of `node` and its attributes.
struct SetOperator {
  void operator()(const op::Convolution& convolution) const {
    node->set_op("Conv2D");
    SetWindow(convolution.window, input, node);
  }
  void operator()(const op::DepthwiseConvolution& convolution) const {
    node->set_op("DepthwiseConv2dNative");
    SetWindow(convolution.window, input, node);
  }
  void operator()(const op::BatchNorm& norm) const {
    node->set_op("FusedBatchNormV3");
    attribute("epsilon").set_f(norm.epsilon);
    attribute("is_training").set_b(!norm.frozen);
  }
  void operator()(const op::Activation& activation) const {
    node->set_op(ActivationName(activation.function));
    if (activation.function == ActivationFunction::kLeakyRelu) {
      attribute("alpha").set_f(activation.negative_slope);
    }
  }
  void operator()(const op::Add&) const { node->set_op("AddV2"); }
  void operator()(const op::Multiply&) const { node->set_op("Mul"); }
  void operator()(const op::Concat&) const { node->set_op("ConcatV2"); }
  void operator()(const op::MaxPool& pool) const { Pool("MaxPool", pool.window); }
  void operator()(const op::AveragePool& pool) const { Pool("AvgPool", pool.window); }
  void operator()(const op::GlobalAveragePool&) const {
    node->set_op("Mean");
    attribute("keep_dims").set_b(true);
  }
  void operator()(const op::Upsample&) const { node->set_op("ResizeNearestNeighbor"); }
  // TensorFlow has no such operator: it is part of a depthwise convolution with a channel
  // multiplier.
  void operator()(const op::RepeatChannels& repeat) const {
    node->set_op("RepeatChannels");
    attribute("times").set_i(repeat.times);
  }
  void operator()(const op::Dropout& dropout) const {
    node->set_op("Dropout");
    attribute("rate").set_f(1.0f - dropout.keep_probability);
  }

  void Pool(const std::string& name, const Window& window) const {
    node->set_op(name);
    SetIntegers("ksize", {1, window.kernel, window.kernel, 1}, node);
    SetWindow(window, input, node);
  }
  tensorflow::AttrValue& attribute(const std::string& name) const {
    return (*node->mutable_attr())[name];
  }

  const FeatureShape& input;
  NodeDef* node;
};

// Adds a node that reads nothing: the image or a variable.
void AddSource(const std::string& name, const std::string& op, absl::Span<const int64_t> shape,
               tensorflow::GraphDef* graph) {
  NodeDef* const node = graph->add_node();
  node->set_name(name);
  node->set_op(op);
  (*node->mutable_attr())["dtype"].set_type(tensorflow::DT_FLOAT);
  FillShape(shape, (*node->mutable_attr())["shape"].mutable_shape());
  SetOutputShape(shape, node);
}

}  // namespace

tensorflow::GraphDef MakeGraphDef(const NetworkSpec& network) {
  tensorflow::GraphDef graph;
  AddSource(kImageName, "Placeholder", BatchOf(network.input), &graph);
  for (const VariableSpec& variable : network.variables) {
    AddSource(variable.name, "VariableV2", variable.shape, &graph);
  }
  std::vector<std::string> values;  // for each node of the network, the name of what it computes
  for (const Node& node : network.nodes) {
    NodeDef* const added = graph.add_node();
    std::visit(SetOperator{ShapeOfInput(network, node.inputs[0]), added}, node.op);
    const std::vector<int> variables = VariablesOf(node.op);
    added->set_name(variables.empty() ? node.name : absl::StrCat(node.name, "/", added->op()));
    for (const int input : node.inputs) {
      added->add_input(input == Node::kImage ? kImageName : values[input]);
    }
    SetOutputShape(BatchOf(node.shape), added);
    values.push_back(added->name());
    const auto* const convolution = std::get_if<op::Convolution>(&node.op);
    for (const int variable : variables) {
      NodeDef* reader = added;
      if (convolution != nullptr && variable == convolution->biases) {
        reader = graph.add_node();
        reader->set_name(node.name + "/BiasAdd");
        reader->set_op("BiasAdd");
        reader->add_input(added->name());
        SetOutputShape(BatchOf(node.shape), reader);
        values.back() = reader->name();
      }
      reader->add_input(network.variables[variable].name);
    }
  }
  return graph;
}

}  // namespace pushpull
