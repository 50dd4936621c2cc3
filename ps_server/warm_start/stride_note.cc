#include "ps_server/warm_start/stride_note.h"

#include <map>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace pushpull {
namespace {

// Calls f(index of the weights, stride) for each convolution.
template <typename F>
void ForEachStride(const NetworkSpec& network, F f) {
  for (const Node& node : network.nodes) {
    if (const auto* full = std::get_if<op::Convolution>(&node.op)) {
      f(full->weights, full->window.stride);
    } else if (const auto* depthwise = std::get_if<op::DepthwiseConvolution>(&node.op)) {
      f(depthwise->weights, depthwise->window.stride);
    }
  }
}

absl::string_view WeightsName(const NetworkSpec& network, int variable) {
  return absl::StripPrefix(network.variables[variable].name, "FeatureExtractor/");
}

}  // namespace

std::string StrideNote(const NetworkSpec& network, const NetworkSpec& source,
                       absl::FunctionRef<bool(int)> is_restored) {
  std::map<absl::string_view, int> there;
  ForEachStride(source, [&](int weights, int stride) {
    there.emplace(WeightsName(source, weights), stride);
  });
  int different = 0;
  std::string first;
  ForEachStride(network, [&](int weights, int stride) {
    const auto found = there.find(WeightsName(network, weights));
    if (found == there.end() || found->second == stride || !is_restored(weights)) return;
    if (++different > 1) return;
    first = absl::StrCat(network.variables[weights].name, " (stride ", stride, " here, ",
                         found->second, " there)");
  });
  if (different == 0) return "";
  return absl::StrCat(
      "the network of these weights has other strides in ", different,
      different == 1 ? " convolution, " : " convolutions, the first of which has ", first,
      "; the weights fit, but layers that stay frozen compute other features than they were "
      "trained for");
}

}  // namespace pushpull
