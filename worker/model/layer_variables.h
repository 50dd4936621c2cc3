// Finds the place of each layer's variables in the flat vector.
#ifndef PUSHPULL_WORKER_MODEL_LAYER_VARIABLES_H_
#define PUSHPULL_WORKER_MODEL_LAYER_VARIABLES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/model/variable_layout.h"
#include "worker/model/fused_network.h"

namespace pushpull {

// The place of one variable, in elements of the flat vector.
struct VariablePlace {
  static constexpr int64_t kAbsent = -1;
  int64_t offset = kAbsent;  // kAbsent: the layer has no such variable
  int64_t size = 0;
  int64_t padded_size = 0;  // distance to the next variable, or to the end of the vector
  bool frozen = false;
  // A later layer has the same variable, so the backward pass of this layer adds to its gradient.
  bool shared = false;
  bool present() const { return offset != kAbsent; }
};

struct LayerVariables {
  VariablePlace weights;
  VariablePlace biases;
  VariablePlace gamma;
  VariablePlace beta;
  VariablePlace moving_mean;
  VariablePlace moving_variance;
  // All six, present or not, in the order of the layout.
  std::array<const VariablePlace*, 6> places() const {
    return {&weights, &biases, &gamma, &beta, &moving_mean, &moving_variance};
  }
  // True if the layer has weights, biases, gamma or beta that are not frozen, so that the backward
  // pass must reach it.
  bool trainable() const;
};

// Returns one entry per layer of `fused`. INVALID_ARGUMENT: the layout does not match the network;
// the message names the first variable that differs.
absl::StatusOr<std::vector<LayerVariables>> ResolveVariables(const NetworkSpec& network,
                                                             const FusedNetwork& fused,
                                                             const VariableLayout& layout);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_LAYER_VARIABLES_H_
