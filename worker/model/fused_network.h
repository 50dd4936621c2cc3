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
#include "kernels/operands.h"
#include "kernels/shape.h"

namespace pushpull {

// One fused layer: value = skip + activation(batch_norm(op(dropout(input)))). Several layers
// may read the value. `op` is a convolution with or without biases, a global pool, or a gather: an
// operator that reads whole values (kernels/gather/gather.h). A gather may have several inputs, and
// has neither dropout nor batch norm.
//
// The activation of a fused layer has a derivative of 0 or 1. Each reader of a value multiplies the
// gradient by it, and doing so again changes nothing. All other activations are gathers.
struct FusedLayer {
  static constexpr int kImage = -1;  // for `inputs`: the network's input
  static constexpr int kNone = -2;   // for `skip`: there is none

  enum class Kind { kConvolution, kDepthwise, kGlobalAveragePool, kGather };

  Kind kind = Kind::kConvolution;
  std::string name;         // of the node of `op`
  std::vector<int> inputs;  // indices of the layers whose values are read; earlier layers
  int skip = kNone;         // index of the layer whose value is added; an earlier layer
  std::vector<FeatureShape> input_shapes;
  FeatureShape output_shape;
  Window window;    // of a convolution
  Operator gather;  // of a gather
  // Variables are indices in NetworkSpec::variables, or op::kNoVariable.
  int weights = op::kNoVariable;
  int biases = op::kNoVariable;
  std::optional<op::BatchNorm> batch_norm;
  FusedActivation activation = FusedActivation::kNone;
  float keep_probability = 1.0f;  // of the dropout

  // Those of a layer with one input.
  int input() const { return inputs[0]; }
  const FeatureShape& input_shape() const { return input_shapes[0]; }
};

struct FusedNetwork {
  // In topological order.
  std::vector<FusedLayer> layers;
  // The layers of OutputNodes(network), in that order. They have no batch norm, activation or skip.
  std::vector<int> outputs;
};

// Requires CheckNetwork(network).ok(). INVALID_ARGUMENT: a node can be part of no fused layer; the
// message names it.
absl::StatusOr<FusedNetwork> FuseNetwork(const NetworkSpec& network);

// The shape of a layer's operator on a batch of `samples`.
ConvolutionShape ConvolutionOf(const FusedLayer& layer, int64_t samples);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_FUSED_NETWORK_H_
