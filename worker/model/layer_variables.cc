// Tested by tests/worker/model/network_test.cc.
#include "worker/model/layer_variables.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

VariableSlot FindSlot(const VariableLayout& layout, int index) {
  VariableSlot slot;
  if (index == op::kNoVariable) return slot;
  const int64_t end =
      index + 1 < layout.num_variables() ? layout.offset(index + 1) : layout.total_elements();
  slot.offset = layout.offset(index);
  slot.size = layout.num_elements(index);
  slot.padded_size = end - slot.offset;
  slot.frozen = layout.variables()[index].frozen;
  return slot;
}

// Only weights and biases can be shared (CheckNetwork).
void MarkShared(std::vector<LayerVariables>* layers) {
  std::set<int64_t> written;  // offsets of the variables of later layers
  for (size_t l = layers->size(); l-- > 0;) {
    for (VariableSlot* slot : {&(*layers)[l].weights, &(*layers)[l].biases}) {
      if (slot->present()) slot->shared = !written.insert(slot->offset).second;
    }
  }
}

}  // namespace

bool LayerVariables::trainable() const {
  for (const VariableSlot* slot : {&weights, &biases, &gamma, &beta}) {
    if (slot->present() && !slot->frozen) return true;
  }
  return false;
}

absl::StatusOr<std::vector<LayerVariables>> ResolveVariables(const NetworkSpec& network,
                                                             const FusedNetwork& fused,
                                                             const VariableLayout& layout) {
  PP_ASSIGN_OR_RETURN(const VariableLayout expected, VariableLayout::Create(network.variables));
  if (const std::string difference = expected.DescribeDifference(layout); !difference.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the variables are not those of network ", network.name, ": ", difference));
  }
  std::vector<LayerVariables> result;
  for (const FusedLayer& layer : fused.layers) {
    const op::BatchNorm norm = layer.batch_norm.value_or(op::BatchNorm());
    result.push_back({FindSlot(layout, layer.weights), FindSlot(layout, layer.biases),
                      FindSlot(layout, norm.gamma), FindSlot(layout, norm.beta),
                      FindSlot(layout, norm.moving_mean), FindSlot(layout, norm.moving_variance)});
  }
  MarkShared(&result);
  return result;
}

}  // namespace pushpull
