// The fused layers that a network is computed with. FuseNetwork joins the nodes of a graph where
// one pass over memory can do the work of several: a batch norm, an activation and an addition are
// computed where the value is read (kernels/operators.h). Plain values and pure functions.
#ifndef PUSHPULL_WORKER_MODEL_FUSED_NETWORK_H_
#define PUSHPULL_WORKER_MODEL_FUSED_NETWORK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "kernels/shape.h"

namespace pushpull {

// One fused layer: value = residual + activation(batch_norm(op(dropout(input)))), where `op` is a
// convolution with or without biases, or a pool. Several layers may read the value.
struct FusedLayer {
  static constexpr int kImage = -1;  // for `input`: the network's input
  static constexpr int kNone = -2;   // for `residual`: there is none

  enum class Kind { kConvolution, kDepthwise, kGlobalAveragePool };

  Kind kind = Kind::kConvolution;
  std::string name;      // of the node of `op`
  int input = kImage;    // index of the layer whose value is read; an earlier layer
  int residual = kNone;  // index of the layer whose value is added; an earlier layer
  FeatureShape input_shape;
  FeatureShape output_shape;
  Window window;
  // Variables are indices in NetworkSpec::variables, or op::kNoVariable.
  int weights = op::kNoVariable;
  int biases = op::kNoVariable;
  std::optional<op::BatchNorm> batch_norm;
  ActivationFunction activation = ActivationFunction::kNone;
  float keep_probability = 1.0f;  // of the dropout
};

struct FusedNetwork {
  // In topological order.
  std::vector<FusedLayer> layers;
  // The layers of OutputNodes(network), in that order. They have neither batch norm nor activation
  // nor residual.
  std::vector<int> outputs;
};

// Requires CheckNetwork(network).ok(). INVALID_ARGUMENT: a node can be part of no fused layer; the
// message names it.
absl::StatusOr<FusedNetwork> FuseNetwork(const NetworkSpec& network);

// The shape of a layer's operator on a batch of `samples`.
ConvolutionShape ConvolutionOf(const FusedLayer& layer, int64_t samples);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_FUSED_NETWORK_H_
