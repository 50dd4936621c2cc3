// Tested by tests/ps_server/warm_start/restore_test.cc.
#include "ps_server/warm_start/torchvision_names.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace pushpull {
namespace {

constexpr int kNumBlocks = 17;

// Translates the last part of a variable's name. `convolution` and `norm` are torchvision's names
// of the layer's two modules.
std::optional<std::string> Leaf(absl::string_view leaf, const std::string& convolution,
                                const std::string& norm) {
  if (leaf == "weights" || leaf == "depthwise_weights") return convolution + ".weight";
  if (leaf == "BatchNorm/gamma") return norm + ".weight";
  if (leaf == "BatchNorm/beta") return norm + ".bias";
  if (leaf == "BatchNorm/moving_mean") return norm + ".running_mean";
  if (leaf == "BatchNorm/moving_variance") return norm + ".running_var";
  return std::nullopt;
}

// Translates a layer whose convolution and batch norm form one Sequential in torchvision:
// <module>.0 and <module>.1.
std::optional<std::string> Pair(absl::string_view leaf, const std::string& module) {
  return Leaf(leaf, module + ".0", module + ".1");
}

std::optional<std::string> BlockName(absl::string_view block, absl::string_view rest) {
  int index = 0;
  if (!block.empty() && (!absl::ConsumePrefix(&block, "_") || !absl::SimpleAtoi(block, &index) ||
                         index < 1 || index >= kNumBlocks)) {
    return std::nullopt;
  }
  const std::string module = absl::StrCat("features.", index + 1, ".conv.");
  // The first block has no expansion, so its parts are one place earlier.
  const int first = index == 0 ? -1 : 0;
  if (index > 0 && absl::ConsumePrefix(&rest, "expand/")) return Pair(rest, module + "0");
  if (absl::ConsumePrefix(&rest, "depthwise/")) {
    return Pair(rest, absl::StrCat(module, first + 1));
  }
  if (absl::ConsumePrefix(&rest, "project/")) {
    return Leaf(rest, absl::StrCat(module, first + 2), absl::StrCat(module, first + 3));
  }
  return std::nullopt;
}

}  // namespace

bool IsTorchvisionMobilenetV2(const TensorSource& source) {
  return source.Find("features.0.0.weight") != nullptr &&
         source.Find("features.18.1.running_var") != nullptr;
}

std::optional<std::string> TorchvisionName(absl::string_view variable) {
  if (absl::ConsumePrefix(&variable, "Conv/")) return Pair(variable, "features.0");
  if (absl::ConsumePrefix(&variable, "Conv_1/")) return Pair(variable, "features.18");
  if (variable == "Logits/Conv2d_1c_1x1/weights") return "classifier.1.weight";
  if (variable == "Logits/Conv2d_1c_1x1/biases") return "classifier.1.bias";
  if (!absl::ConsumePrefix(&variable, "expanded_conv")) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(variable, absl::MaxSplits('/', 1));
  return BlockName(parts.first, parts.second);
}

}  // namespace pushpull
