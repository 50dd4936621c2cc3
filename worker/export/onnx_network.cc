#include "worker/export/onnx_network.h"

#include <algorithm>

#include "worker/export/folded_layer.h"

namespace pushpull {
namespace {

using Integers = std::vector<int64_t>;

constexpr char kZero[] = "constants/zero";
constexpr char kSix[] = "constants/six";

std::string AddActivation(ActivationFunction activation, const std::string& scope,
                          const std::string& value, OnnxGraph* graph) {
  switch (activation) {
    case ActivationFunction::kNone:
      break;
    case ActivationFunction::kRelu:
      return graph->AddNode("Relu", scope + "/Relu", {value});
    case ActivationFunction::kRelu6:
      return graph->AddNode("Clip", scope + "/Relu6", {value, kZero, kSix});
  }
  return value;
}

std::string AddConvolution(const LayerSpec& layer, const InferenceModel& model,
                           const std::string& input, OnnxGraph* graph) {
  const FoldedLayer folded = FoldLayer(layer, model);
  const std::string weights = graph->AddFloats(WeightsName(layer), folded.shape, folded.weights);
  const std::string biases = graph->AddFloats(
      layer.scope + "/biases", {layer.output_shape.channels}, absl::MakeConstSpan(folded.biases));
  const SpatialPadding& pad = layer.padding;
  const int64_t group = layer.kind == LayerKind::kDepthwise ? layer.output_shape.channels : 1;
  return graph->AddNode("Conv", layer.scope + "/Conv", {input, weights, biases},
                        {{"group", group},
                         {"kernel_shape", Integers{layer.kernel, layer.kernel}},
                         {"pads", Integers{pad.top, pad.left, pad.bottom, pad.right}},
                         {"strides", Integers{layer.stride, layer.stride}}});
}

}  // namespace

std::string AddPreprocessing(const std::string& name, const NetworkSpec& network,
                             OnnxGraph* graph) {
  const FeatureShape& size = network.input;
  const std::string scope = "preprocessing/";
  const std::string picture =
      graph->AddInput(name, onnx::TensorProto::UINT8, {"N", "H", "W", int64_t{size.channels}});
  const std::string numbers = graph->AddNode("Cast", scope + "numbers", {picture},
                                             {{"to", int64_t{onnx::TensorProto::FLOAT}}});
  const std::string planes =
      graph->AddNode("Transpose", scope + "planes", {numbers}, {{"perm", Integers{0, 3, 1, 2}}});

  const Integers zero = {0}, two = {2}, wanted = {size.height, size.width};
  const std::string shape = graph->AddNode("Shape", scope + "shape", {planes});
  const std::string outer = graph->AddNode("Slice", scope + "outer",
                                           {shape, graph->AddInts(scope + "slice_begin", {1}, zero),
                                            graph->AddInts(scope + "slice_end", {1}, two)});
  const std::string sizes = graph->AddNode(
      "Concat", scope + "sizes", {outer, graph->AddInts(scope + "height_and_width", {2}, wanted)},
      {{"axis", int64_t{0}}});
  const std::string resized =
      graph->AddNode("Resize", scope + "resized", {planes, "", "", sizes},
                     {{"coordinate_transformation_mode", std::string("asymmetric")},
                      {"mode", std::string("linear")}});

  const float factor[] = {2.0f / 255.0f}, one[] = {1.0f};
  const std::string scaled = graph->AddNode(
      "Mul", scope + "scaled", {resized, graph->AddFloats(scope + "two_by_255", {}, factor)});
  return graph->AddNode("Sub", scope + "image", {scaled, graph->AddFloats(scope + "one", {}, one)});
}

std::vector<std::string> AddLayers(const InferenceModel& model, const std::string& image,
                                   OnnxGraph* graph) {
  const std::vector<LayerSpec>& layers = model.network.layers;
  if (std::any_of(layers.begin(), layers.end(), [](const LayerSpec& layer) {
        return layer.activation == ActivationFunction::kRelu6;
      })) {
    const float zero[] = {0.0f}, six[] = {6.0f};
    graph->AddFloats(kZero, {}, zero);
    graph->AddFloats(kSix, {}, six);
  }
  std::vector<std::string> values;
  for (const LayerSpec& layer : layers) {
    const std::string& input = layer.input == LayerSpec::kImage ? image : values[layer.input];
    std::string value = layer.kind == LayerKind::kGlobalAveragePool
                            ? graph->AddNode("GlobalAveragePool", layer.scope, {input})
                            : AddConvolution(layer, model, input, graph);
    value = AddActivation(layer.activation, layer.scope, value, graph);
    if (layer.residual != LayerSpec::kNone) {
      value = graph->AddNode("Add", layer.scope + "/add", {value, values[layer.residual]});
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace pushpull
