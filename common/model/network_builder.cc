// Tested by tests/common/model/ssd_mobilenet_test.cc.
#include "common/model/network_builder.h"

#include <utility>

#include "glog/logging.h"

namespace pushpull {

NetworkBuilder::NetworkBuilder(std::string name, FeatureShape image, bool freeze_batch_norm)
    : freeze_batch_norm_(freeze_batch_norm) {
  network_.name = std::move(name);
  network_.input = image;
}

const FeatureShape& NetworkBuilder::shape(int layer) const {
  return layer == LayerSpec::kImage ? network_.input : network_.layers[layer].output_shape;
}

int NetworkBuilder::AddNormalized(const LayerRequest& request,
                                  const LayerHyperparams& hyperparams) {
  CHECK(hyperparams.batch_norm.has_value()) << request.scope;
  LayerSpec layer;
  layer.batch_norm = hyperparams.batch_norm;
  layer.batch_norm->frozen |= freeze_batch_norm_;
  return Add(request, hyperparams, std::move(layer));
}

int NetworkBuilder::AddBiased(const LayerRequest& request, const LayerHyperparams& hyperparams) {
  LayerSpec layer;
  layer.has_biases = true;
  return Add(request, hyperparams, std::move(layer));
}

int NetworkBuilder::AddGlobalAveragePool(const std::string& scope, int input) {
  LayerSpec layer;
  layer.kind = LayerKind::kGlobalAveragePool;
  layer.scope = scope;
  layer.input = input;
  layer.input_shape = shape(input);
  layer.output_shape = {1, 1, layer.input_shape.channels};
  network_.layers.push_back(std::move(layer));
  return static_cast<int>(network_.layers.size()) - 1;
}

int NetworkBuilder::Add(const LayerRequest& request, const LayerHyperparams& hyperparams,
                        LayerSpec layer) {
  const bool depthwise = request.kind == LayerKind::kDepthwise;
  layer.kind = request.kind;
  layer.scope = request.scope;
  layer.input = request.input;
  layer.input_shape = shape(request.input);
  layer.kernel = request.kernel;
  layer.stride = request.stride;
  layer.activation = request.activation;
  ApplySamePadding(depthwise ? layer.input_shape.channels : request.depth, &layer);
  layer.weights_initializer = ResolveInitializer(hyperparams.initializer, WeightsShape(layer));
  const bool regularized = !depthwise || hyperparams.regularize_depthwise;
  layer.l2_weight = regularized ? hyperparams.l2_weight : 0.0f;
  network_.layers.push_back(std::move(layer));
  return static_cast<int>(network_.layers.size()) - 1;
}

}  // namespace pushpull
