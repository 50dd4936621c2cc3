// Tested by tests/worker/model/network_test.cc.
#include "worker/model/layer_variables.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

VariableSlot FindSlot(const VariableLayout& layout, const std::string& name) {
  VariableSlot slot;
  const std::optional<int64_t> index = layout.Find(name);
  if (!index.has_value()) return slot;
  const int64_t end =
      *index + 1 < layout.num_variables() ? layout.offset(*index + 1) : layout.total_elements();
  slot.offset = layout.offset(*index);
  slot.size = layout.num_elements(*index);
  slot.padded_size = end - slot.offset;
  slot.frozen = layout.variables()[*index].frozen;
  return slot;
}

}  // namespace

bool LayerVariables::trainable() const {
  for (const VariableSlot* slot : {&weights, &biases, &gamma, &beta}) {
    if (slot->present() && !slot->frozen) return true;
  }
  return false;
}

absl::StatusOr<std::vector<LayerVariables>> ResolveVariables(const NetworkSpec& network,
                                                             const VariableLayout& layout) {
  PP_ASSIGN_OR_RETURN(const VariableLayout expected,
                      VariableLayout::Create(DeclareVariables(network)));
  if (const std::string difference = expected.DescribeDifference(layout); !difference.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the variables are not those of network ", network.name, ": ", difference));
  }
  std::vector<LayerVariables> result;
  for (const LayerSpec& layer : network.layers) {
    result.push_back({FindSlot(layout, WeightsName(layer)), FindSlot(layout, BiasesName(layer)),
                      FindSlot(layout, GammaName(layer)), FindSlot(layout, BetaName(layer)),
                      FindSlot(layout, MovingMeanName(layer)),
                      FindSlot(layout, MovingVarianceName(layer))});
  }
  return result;
}

}  // namespace pushpull
