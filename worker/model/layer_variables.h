// Where a layer's variables lie in the flat vector.
#ifndef PUSHPULL_WORKER_MODEL_LAYER_VARIABLES_H_
#define PUSHPULL_WORKER_MODEL_LAYER_VARIABLES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/variable_layout.h"

namespace pushpull {

struct VariableSlot {
  static constexpr int64_t kAbsent = -1;
  int64_t offset = kAbsent;
  int64_t size = 0;
  int64_t padded_size = 0;  // up to the next variable
  bool frozen = false;
  bool present() const { return offset != kAbsent; }
};

struct LayerVariables {
  VariableSlot weights;
  VariableSlot biases;
  VariableSlot gamma;
  VariableSlot beta;
  VariableSlot moving_mean;
  VariableSlot moving_variance;
  // All of them, present or not, in the order of the layout.
  std::array<const VariableSlot*, 6> slots() const {
    return {&weights, &biases, &gamma, &beta, &moving_mean, &moving_variance};
  }
  // Whether backward has to produce anything for this layer.
  bool trainable() const;
};

// One entry per layer. INVALID_ARGUMENT names the first variable in which the layout is not the
// network's.
absl::StatusOr<std::vector<LayerVariables>> ResolveVariables(const NetworkSpec& network,
                                                             const VariableLayout& layout);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_LAYER_VARIABLES_H_
