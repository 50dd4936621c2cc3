// Tested by tests/worker/export/onnx_model_test.cc.
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
