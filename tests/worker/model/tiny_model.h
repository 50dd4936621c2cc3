// Networks that are small enough for central differences and for emulated kernels.
#ifndef PUSHPULL_TESTS_WORKER_MODEL_TINY_MODEL_H_
#define PUSHPULL_TESTS_WORKER_MODEL_TINY_MODEL_H_

#include <string>
#include <tuple>

#include "common/model/network_spec.h"

namespace pushpull {

inline LayerSpec MakeLayer(LayerKind kind, const char* scope, const NetworkSpec& network,
                           int kernel, int stride, int channels, ActivationFunction activation) {
  LayerSpec layer;
  layer.kind = kind;
  layer.scope = scope;
  layer.input = static_cast<int>(network.layers.size()) - 1;
  layer.input_shape = network.layers.empty() ? network.input : network.layers.back().output_shape;
  layer.kernel = kernel;
  layer.stride = stride;
  layer.batch_norm = BatchNormSpec{};
  layer.activation = activation;
  layer.weights_initializer = {Initializer::Kind::kTruncatedNormal, 0.0f, 0.5f};
  ApplySamePadding(channels, &layer);
  return layer;
}

// A stem, a strided block, two residual blocks in a row, a pool, a hidden layer and classes: every
// kind of connection between layers.
inline NetworkSpec MakeTinyNetwork() {
  NetworkSpec network;
  network.name = "Tiny";
  network.input = {7, 6, 3};
  network.num_classes = 3;
  network.label_smoothing = 0.1f;
  const auto add = [&](LayerKind kind, const char* scope, int kernel, int stride, int channels,
                       ActivationFunction activation) {
    network.layers.push_back(MakeLayer(kind, scope, network, kernel, stride, channels, activation));
    return static_cast<int>(network.layers.size()) - 1;
  };
  const ActivationFunction relu6 = ActivationFunction::kRelu6;
  add(LayerKind::kConvolution, "T/stem", 3, 2, 4, relu6);
  add(LayerKind::kDepthwise, "T/b0/depthwise", 3, 1, 4, relu6);
  int source = add(LayerKind::kPointwise, "T/b0/project", 1, 1, 3, ActivationFunction::kNone);
  for (const char* block : {"T/b1", "T/b2"}) {
    const std::string prefix = block;
    add(LayerKind::kPointwise, (prefix + "/expand").c_str(), 1, 1, 8, relu6);
    add(LayerKind::kDepthwise, (prefix + "/depthwise").c_str(), 3, 1, 8, relu6);
    const int project = add(LayerKind::kPointwise, (prefix + "/project").c_str(), 1, 1, 3,
                            ActivationFunction::kNone);
    network.layers[project].residual = source;
    source = project;
  }
  // One batch norm has no scale and another has no centre.
  network.layers[3].batch_norm->scale = false;
  network.layers[4].batch_norm->center = false;
  add(LayerKind::kGlobalAveragePool, "T/pool", 1, 1, 3, ActivationFunction::kNone);
  network.layers.back().batch_norm.reset();
  network.layers.back().output_shape = {1, 1, 3};
  for (const auto& [scope, units, activation] :
       {std::tuple{"T/hidden", 5, ActivationFunction::kRelu},
        std::tuple{"T/classes", 3, ActivationFunction::kNone}}) {
    LayerSpec layer = MakeLayer(LayerKind::kDense, scope, network, 1, 1, units, activation);
    layer.batch_norm.reset();
    layer.has_biases = true;
    network.layers.push_back(layer);
  }
  return network;
}

// Feature maps of 6x6 and 3x3, each with a head. Three layers read the first map.
inline NetworkSpec MakeTinyDetector() {
  NetworkSpec network;
  network.name = "TinyDetector";
  network.input = {12, 12, 3};
  network.detection.emplace();
  DetectionSpec& detection = *network.detection;
  detection.num_classes = 2;
  detection.anchors.num_layers = 2;
  detection.anchors.aspect_ratios = {1.0f, 2.0f};
  detection.matcher.force_match_for_each_row = true;
  detection.loss.hard_example_miner.emplace().max_negatives_per_positive = 3;
  const int maps[] = {0, 1};
  network.layers.push_back(
      MakeLayer(LayerKind::kConvolution, "D/first", network, 3, 2, 8, ActivationFunction::kRelu6));
  network.layers.push_back(MakeLayer(LayerKind::kConvolution, "D/second", network, 3, 2, 12,
                                     ActivationFunction::kRelu6));
  for (const int map : maps) {
    const FeatureShape shape = network.layers[map].output_shape;
    const int anchors =
        3;  // three shapes on the lowest map; above it, two ratios and one interpolated shape
    const auto add = [&](const std::string& scope, int columns) {
      LayerSpec layer = MakeLayer(LayerKind::kPointwise, scope.c_str(), network, 1, 1, 1,
                                  ActivationFunction::kNone);
      layer.input = map;
      layer.input_shape = shape;
      layer.batch_norm.reset();
      layer.has_biases = true;
      ApplySamePadding(anchors * columns, &layer);
      network.layers.push_back(layer);
      return static_cast<int>(network.layers.size()) - 1;
    };
    const std::string head = "D/head" + std::to_string(map);
    const int boxes = add(head + "/boxes", kBoxCodeSize);
    const int classes = add(head + "/classes", detection.num_classes + 1);
    detection.heads.push_back({boxes, classes, shape.height, shape.width, anchors});
  }
  return network;
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_MODEL_TINY_MODEL_H_
