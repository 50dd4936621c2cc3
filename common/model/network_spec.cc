// Tested by tests/common/model/mobilenet_v2_test.cc.
// Tested by tests/common/model/model_layout_test.cc.
#include "common/model/network_spec.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

VariableSpec ChannelVariable(std::string name, const LayerSpec& layer, float initial_value) {
  VariableSpec variable;
  variable.name = std::move(name);
  variable.shape = {layer.output_shape.channels};
  variable.initializer = {Initializer::Kind::kConstant, initial_value, 0.0f};
  return variable;
}

VariableSpec MovingStatistic(std::string name, const LayerSpec& layer, float initial_value) {
  VariableSpec variable = ChannelVariable(std::move(name), layer, initial_value);
  variable.kind = VariableKind::kMovingStatistic;
  variable.moving_average_decay = layer.batch_norm->decay;
  variable.frozen = layer.batch_norm->frozen;
  return variable;
}

void DeclareLayer(const LayerSpec& layer, std::vector<VariableSpec>* variables) {
  if (layer.kind == LayerKind::kGlobalAveragePool) return;
  VariableSpec weights;
  weights.name = WeightsName(layer);
  weights.shape = WeightsShape(layer);
  weights.initializer = layer.weights_initializer;
  weights.l2_weight = layer.l2_weight;
  variables->push_back(std::move(weights));
  if (layer.has_biases) {
    variables->push_back(ChannelVariable(BiasesName(layer), layer, layer.biases_initial_value));
  }
  if (!layer.batch_norm.has_value()) return;
  if (layer.batch_norm->scale) variables->push_back(ChannelVariable(GammaName(layer), layer, 1.0f));
  if (layer.batch_norm->center) variables->push_back(ChannelVariable(BetaName(layer), layer, 0.0f));
  variables->push_back(MovingStatistic(MovingMeanName(layer), layer, 0.0f));
  variables->push_back(MovingStatistic(MovingVarianceName(layer), layer, 1.0f));
}

std::string BatchNormName(const LayerSpec& layer, const char* leaf) {
  return layer.batch_norm.has_value() ? absl::StrCat(layer.scope, "/BatchNorm/", leaf) : "";
}

}  // namespace

std::vector<int> OutputLayers(const NetworkSpec& network) {
  if (!network.detection.has_value()) return {static_cast<int>(network.layers.size()) - 1};
  std::vector<int> layers;
  for (const DetectionHead& head : network.detection->heads) {
    layers.push_back(head.box_layer);
    layers.push_back(head.class_layer);
  }
  return layers;
}

AxisPadding SamePadding(int size, int kernel, int stride) {
  AxisPadding padding;
  padding.output_size = (size + stride - 1) / stride;
  const int total = std::max((padding.output_size - 1) * stride + kernel - size, 0);
  padding.before = total / 2;
  padding.after = total - padding.before;
  return padding;
}

void ApplySamePadding(int output_channels, LayerSpec* layer) {
  const AxisPadding rows = SamePadding(layer->input_shape.height, layer->kernel, layer->stride);
  const AxisPadding columns = SamePadding(layer->input_shape.width, layer->kernel, layer->stride);
  layer->padding = {rows.before, rows.after, columns.before, columns.after};
  layer->output_shape = {rows.output_size, columns.output_size, output_channels};
}

std::string WeightsName(const LayerSpec& layer) {
  switch (layer.kind) {
    case LayerKind::kGlobalAveragePool:
      return "";
    case LayerKind::kDepthwise:
      return absl::StrCat(layer.scope, "/depthwise_weights");
    case LayerKind::kConvolution:
    case LayerKind::kPointwise:
    case LayerKind::kDense:
      return absl::StrCat(layer.scope, "/weights");
  }
  return "";
}

std::string BiasesName(const LayerSpec& layer) {
  return layer.has_biases ? absl::StrCat(layer.scope, "/biases") : "";
}

std::string GammaName(const LayerSpec& layer) {
  return layer.batch_norm.has_value() && layer.batch_norm->scale ? BatchNormName(layer, "gamma")
                                                                 : "";
}

std::string BetaName(const LayerSpec& layer) {
  return layer.batch_norm.has_value() && layer.batch_norm->center ? BatchNormName(layer, "beta")
                                                                  : "";
}

std::string MovingMeanName(const LayerSpec& layer) { return BatchNormName(layer, "moving_mean"); }

std::string MovingVarianceName(const LayerSpec& layer) {
  return BatchNormName(layer, "moving_variance");
}

std::vector<int64_t> WeightsShape(const LayerSpec& layer) {
  switch (layer.kind) {
    case LayerKind::kGlobalAveragePool:
      return {};
    case LayerKind::kDepthwise:
      return {layer.kernel, layer.kernel, layer.input_shape.channels, 1};
    case LayerKind::kConvolution:
    case LayerKind::kPointwise:
    case LayerKind::kDense:
      return {layer.kernel, layer.kernel, layer.input_shape.channels, layer.output_shape.channels};
  }
  return {};
}

std::vector<VariableSpec> DeclareVariables(const NetworkSpec& network) {
  std::vector<VariableSpec> variables;
  for (const LayerSpec& layer : network.layers) DeclareLayer(layer, &variables);
  return variables;
}

double InitialStatisticsShare(const NetworkSpec& network, int64_t num_updates) {
  double share = 0.0;
  for (const LayerSpec& layer : network.layers) {
    if (!layer.batch_norm.has_value() || layer.batch_norm->frozen) continue;
    share = std::max(share, std::pow(layer.batch_norm->decay, num_updates));
  }
  return share;
}

}  // namespace pushpull
