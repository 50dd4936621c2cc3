// Tested by tests/worker/export/onnx_execution_test.cc.
// Tested by tests/worker/export/onnx_model_test.cc.
// Tested by tests/worker/export/onnx_random_graph_test.cc.
#include "worker/export/onnx_network.h"

#include <set>
#include <string>
#include <variant>

#include "glog/logging.h"

#include "worker/export/folded_layer.h"

namespace pushpull {
namespace {

using Integers = std::vector<int64_t>;

// Adds the ONNX form of each node, in the order of the nodes. A convolution is added with the batch
// norm that follows it.
class NodeWriter {
 public:
  NodeWriter(const InferenceModel& model, const std::string& image, OnnxGraph* graph)
      : model_(model),
        image_(image),
        graph_(*graph),
        readers_(FindReaders(model.network)),
        values_(model.network.nodes.size()) {}

  std::vector<std::string> Write() && {
    const std::vector<Node>& nodes = model_.network.nodes;
    for (node_ = 0; node_ < static_cast<int>(nodes.size()); ++node_) {
      values_[node_] = std::visit(*this, nodes[node_].op);
    }
    return std::move(values_);
  }

  std::string operator()(const op::Convolution& convolution) {
    return IsNormalized() ? "" : AddConvolution(node_, convolution.window, 1, nullptr);
  }
  std::string operator()(const op::DepthwiseConvolution& convolution) {
    return IsNormalized()
               ? ""
               : AddConvolution(node_, convolution.window, node().shape.channels, nullptr);
  }
  std::string operator()(const op::BatchNorm& norm) {
    const int input = node().inputs[0];
    const Operator& op = model_.network.nodes[input].op;
    if (const auto* const convolution = std::get_if<op::Convolution>(&op)) {
      return AddConvolution(input, convolution->window, 1, &norm);
    }
    const auto* const depthwise = std::get_if<op::DepthwiseConvolution>(&op);
    CHECK(depthwise != nullptr) << node().name << " follows no convolution";
    return AddConvolution(input, depthwise->window, node().shape.channels, &norm);
  }
  std::string operator()(const op::Activation& activation) {
    const std::string& name = node().name;
    switch (activation.function) {
      case ActivationFunction::kNone:
        break;
      case ActivationFunction::kRelu:
        return graph_.AddNode("Relu", name, {Input(0)});
      case ActivationFunction::kRelu6:
        return graph_.AddNode("Clip", name, {Input(0), Scalar("zero", 0.0f), Scalar("six", 6.0f)});
      case ActivationFunction::kLeakyRelu:
        return graph_.AddNode("LeakyRelu", name, {Input(0)},
                              {{"alpha", activation.negative_slope}});
      case ActivationFunction::kHardSigmoid:
        return AddHardSigmoid(name);
      case ActivationFunction::kHardSwish:  // an operator of its own only from opset 14 on
        return graph_.AddNode(
            "Mul", name,
            {Input(0), graph_.AddNode("HardSigmoid", name + "/HardSigmoid", {Input(0)},
                                      {{"alpha", 1.0f / 6.0f}, {"beta", 0.5f}})});
      case ActivationFunction::kSigmoid:
        return graph_.AddNode("Sigmoid", name, {Input(0)});
      case ActivationFunction::kSwish:
        return graph_.AddNode("Mul", name,
                              {Input(0), graph_.AddNode("Sigmoid", name + "/Sigmoid", {Input(0)})});
    }
    return Input(0);
  }
  std::string operator()(const op::Add&) {
    return graph_.AddNode("Add", node().name, {Input(0), Input(1)});
  }
  std::string operator()(const op::Multiply&) {
    return graph_.AddNode("Mul", node().name, {Input(0), Input(1)});
  }
  std::string operator()(const op::Concat&) {
    std::vector<std::string> inputs;
    for (size_t i = 0; i < node().inputs.size(); ++i) inputs.push_back(Input(static_cast<int>(i)));
    return graph_.AddNode("Concat", node().name, inputs, {{"axis", int64_t{1}}});
  }
  std::string operator()(const op::MaxPool& pool) {
    return graph_.AddNode("MaxPool", node().name, {Input(0)}, WindowAttributes(pool.window));
  }
  std::string operator()(const op::AveragePool& pool) {
    std::vector<OnnxAttribute> attributes = WindowAttributes(pool.window);
    attributes.push_back({"count_include_pad", int64_t{0}});
    return graph_.AddNode("AveragePool", node().name, {Input(0)}, attributes);
  }
  std::string operator()(const op::Upsample& upsample) {
    const float factor = static_cast<float>(upsample.factor);
    const float scales[] = {1.0f, 1.0f, factor, factor};
    const std::string name = graph_.AddFloats(node().name + "/scales", {4}, scales);
    return graph_.AddNode("Resize", node().name, {Input(0), "", name},
                          {{"mode", std::string("nearest")},
                           {"coordinate_transformation_mode", std::string("asymmetric")},
                           {"nearest_mode", std::string("floor")}});
  }
  // A convolution whose weights are 1, for all readers know convolutions with groups.
  std::string operator()(const op::RepeatChannels& repeat) {
    const int64_t channels = node().shape.channels;
    const std::string weights = graph_.AddFloats(node().name + "/ones", {channels, 1, 1, 1},
                                                 std::vector<float>(channels, 1.0f));
    std::vector<OnnxAttribute> attributes = WindowAttributes(Window());
    attributes.insert(attributes.begin(), {"group", channels / repeat.times});
    return graph_.AddNode("Conv", node().name, {Input(0), weights}, attributes);
  }
  std::string operator()(const op::GlobalAveragePool&) {
    return graph_.AddNode("GlobalAveragePool", node().name, {Input(0)});
  }
  std::string operator()(const op::Dropout&) { return Input(0); }

 private:
  const Node& node() const { return model_.network.nodes[node_]; }

  const std::string& Input(int i) const {
    const int input = node().inputs[i];
    return input == Node::kImage ? image_ : values_[input];
  }

  bool IsNormalized() const {
    const std::vector<int>& readers = readers_[node_];
    return readers.size() == 1 &&
           std::holds_alternative<op::BatchNorm>(model_.network.nodes[readers[0]].op);
  }

  // Returns a constant, which is added to the graph on the first call with its name.
  std::string Scalar(const std::string& name, float value) {
    const std::string full_name = "constants/" + name;
    if (scalars_.insert(name).second) graph_.AddFloats(full_name, {}, {&value, 1});
    return full_name;
  }

  // Does not use the operator HardSigmoid: OpenCV 4.14 and 5.0 take every product a *
  // HardSigmoid(b) for HardSwish(b), whatever a is.
  std::string AddHardSigmoid(const std::string& name) {
    const std::string scaled =
        graph_.AddNode("Mul", name + "/scaled", {Input(0), Scalar("sixth", 1.0f / 6.0f)});
    const std::string line = graph_.AddNode("Add", name + "/line", {scaled, Scalar("half", 0.5f)});
    return graph_.AddNode("Clip", name, {line, Scalar("zero", 0.0f), Scalar("one", 1.0f)});
  }

  static std::vector<OnnxAttribute> WindowAttributes(const TrimmedWindow& window, int stride) {
    const SpatialPadding& pad = window.padding;
    return {{"kernel_shape", Integers{window.height, window.width}},
            {"pads", Integers{pad.top, pad.left, pad.bottom, pad.right}},
            {"strides", Integers{stride, stride}}};
  }
  static std::vector<OnnxAttribute> WindowAttributes(const Window& window) {
    return WindowAttributes({window.kernel, window.kernel, window.padding}, window.stride);
  }

  std::string AddConvolution(int index, const Window& window, int64_t group,
                             const op::BatchNorm* norm) {
    const Node& convolution = model_.network.nodes[index];
    const int input = convolution.inputs[0];
    FoldedLayer folded = FoldLayer(convolution, norm, model_);
    TrimmedWindow trimmed = {window.kernel, window.kernel, window.padding};
    if (std::holds_alternative<op::DepthwiseConvolution>(convolution.op)) {
      trimmed = TrimKernel(window, ShapeOfInput(model_.network, input), convolution.shape, &folded);
    }
    const int variable = VariablesOf(convolution.op)[0];
    // Weights that several nodes share differ once they are folded.
    const std::string name = weights_written_.insert(variable).second
                                 ? model_.network.variables[variable].name
                                 : convolution.name + "/weights";
    const std::string weights = graph_.AddFloats(name, folded.shape, folded.weights);
    const std::string biases =
        graph_.AddFloats(convolution.name + "/biases", {convolution.shape.channels},
                         absl::MakeConstSpan(folded.biases));
    std::vector<OnnxAttribute> attributes = WindowAttributes(trimmed, window.stride);
    attributes.insert(attributes.begin(), {"group", group});
    return graph_.AddNode("Conv", convolution.name + "/Conv",
                          {input == Node::kImage ? image_ : values_[input], weights, biases},
                          attributes);
  }

  const InferenceModel& model_;
  const std::string image_;
  OnnxGraph& graph_;
  const std::vector<std::vector<int>> readers_;
  std::set<int> weights_written_;    // variables
  std::set<std::string> scalars_;    // names of constants
  std::vector<std::string> values_;  // per node; "" for a convolution whose batch norm comes later
  int node_ = 0;                     // the node that is being visited
};

}  // namespace

std::vector<std::string> AddNodes(const InferenceModel& model, const std::string& image,
                                  OnnxGraph* graph) {
  return NodeWriter(model, image, graph).Write();
}

}  // namespace pushpull
