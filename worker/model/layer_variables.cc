// Tested by tests/worker/model/network_test.cc.
#include "worker/model/layer_variables.h"

#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

VariablePlace FindPlace(const VariableLayout& layout, int index) {
  VariablePlace place;
  if (index == op::kNoVariable) return place;
  const int64_t end =
      index + 1 < layout.num_variables() ? layout.offset(index + 1) : layout.total_elements();
  place.offset = layout.offset(index);
  place.size = layout.num_elements(index);
  place.padded_size = end - place.offset;
  place.frozen = layout.variables()[index].frozen;
  return place;
}

// Only weights and biases can be shared (CheckNetwork).
void MarkShared(std::vector<LayerVariables>* layers) {
  std::set<int64_t> written;  // offsets of the variables of later layers
  for (size_t l = layers->size(); l-- > 0;) {
    for (VariablePlace* place : {&(*layers)[l].weights, &(*layers)[l].biases}) {
      if (place->present()) place->shared = !written.insert(place->offset).second;
    }
  }
}

}  // namespace

bool LayerVariables::trainable() const {
  for (const VariablePlace* place : {&weights, &biases, &gamma, &beta}) {
    if (place->present() && !place->frozen) return true;
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
    result.push_back({FindPlace(layout, layer.weights), FindPlace(layout, layer.biases),
                      FindPlace(layout, norm.gamma), FindPlace(layout, norm.beta),
                      FindPlace(layout, norm.moving_mean),
                      FindPlace(layout, norm.moving_variance)});
  }
  MarkShared(&result);
  return result;
}

}  // namespace pushpull
