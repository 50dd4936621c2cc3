// Tested by tests/ps_server/warm_start/restore_test.cc.
#include "ps_server/warm_start/torchvision_names.h"

#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace pushpull {
namespace {

constexpr int kMobilenetV2Blocks = 17;

// Translates the last part of a variable's name. `convolution` and `norm` are torchvision's names
// of the layer's two modules.
std::optional<std::string> Leaf(absl::string_view leaf, const std::string& convolution,
                                const std::string& norm) {
  if (leaf == "weights" || leaf == "depthwise_weights") return convolution + ".weight";
  if (leaf == "biases") return convolution + ".bias";
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

// Parses `prefix` and a number of at least 1.
bool ParseNumber(absl::string_view text, absl::string_view prefix, int* number) {
  return absl::ConsumePrefix(&text, prefix) && absl::SimpleAtoi(text, number) && *number >= 1;
}

// The number of a block from what follows "expanded_conv": 0 for "", 3 for "_3".
std::optional<int> BlockIndex(absl::string_view block) {
  int index = 0;
  if (block.empty()) return 0;
  if (!absl::ConsumePrefix(&block, "_") || !absl::SimpleAtoi(block, &index) || index < 1) {
    return std::nullopt;
  }
  return index;
}

std::optional<std::string> MobilenetV2Block(int index, absl::string_view rest) {
  if (index >= kMobilenetV2Blocks) return std::nullopt;
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

// A block is a list of modules: expansion, depthwise convolution, squeeze-and-excitation and
// projection, the first and the third of which may be absent. A depthwise convolution has one input
// channel per filter.
std::optional<std::string> MobilenetV3Block(int index, absl::string_view rest,
                                            const TensorSource& source) {
  const std::string module = absl::StrCat("features.", index + 1, ".block.");
  const SourceTensor* const first = source.Find(module + "0.0.weight");
  if (first == nullptr || first->shape.size() != 4) return std::nullopt;
  const int depthwise = first->shape[1] == 1 ? 0 : 1;
  if (depthwise == 1 && absl::ConsumePrefix(&rest, "expand/")) return Pair(rest, module + "0");
  if (absl::ConsumePrefix(&rest, "depthwise/")) return Pair(rest, absl::StrCat(module, depthwise));
  const std::string squeeze = absl::StrCat(module, depthwise + 1, ".fc");
  const bool squeezes = source.Find(squeeze + "1.weight") != nullptr;
  if (absl::ConsumePrefix(&rest, "squeeze_excite/Conv/")) return Leaf(rest, squeeze + "1", "");
  if (absl::ConsumePrefix(&rest, "squeeze_excite/Conv_1/")) return Leaf(rest, squeeze + "2", "");
  if (absl::ConsumePrefix(&rest, "project/")) {
    return Pair(rest, absl::StrCat(module, depthwise + (squeezes ? 2 : 1)));
  }
  return std::nullopt;
}

// The parts of "expanded_conv_3/depthwise/weights": 3 and "depthwise/weights".
struct BlockVariable {
  int index;
  absl::string_view rest;
};

std::optional<BlockVariable> ParseBlock(absl::string_view variable) {
  if (!absl::ConsumePrefix(&variable, "expanded_conv")) return std::nullopt;
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(variable, absl::MaxSplits('/', 1));
  const std::optional<int> index = BlockIndex(parts.first);
  if (!index.has_value()) return std::nullopt;
  return BlockVariable{*index, parts.second};
}

std::optional<std::string> MobilenetV2Name(absl::string_view variable) {
  if (absl::ConsumePrefix(&variable, "Conv/")) return Pair(variable, "features.0");
  if (absl::ConsumePrefix(&variable, "Conv_1/")) return Pair(variable, "features.18");
  if (absl::ConsumePrefix(&variable, "Logits/Conv2d_1c_1x1/")) {
    return Leaf(variable, "classifier.1", "");
  }
  const std::optional<BlockVariable> block = ParseBlock(variable);
  return block.has_value() ? MobilenetV2Block(block->index, block->rest) : std::nullopt;
}

std::optional<std::string> MobilenetV3Name(absl::string_view variable, const TensorSource& source) {
  if (absl::ConsumePrefix(&variable, "Conv/")) return Pair(variable, "features.0");
  if (absl::ConsumePrefix(&variable, "Conv_1/")) {
    // The convolution after the last block.
    int last = 1;
    while (source.Find(absl::StrCat("features.", last, ".block.0.0.weight")) != nullptr) ++last;
    return Pair(variable, absl::StrCat("features.", last));
  }
  if (absl::ConsumePrefix(&variable, "Conv_2/")) return Leaf(variable, "classifier.0", "");
  if (absl::ConsumePrefix(&variable, "Logits/Conv2d_1c_1x1/")) {
    return Leaf(variable, "classifier.3", "");
  }
  const std::optional<BlockVariable> block = ParseBlock(variable);
  return block.has_value() ? MobilenetV3Block(block->index, block->rest, source) : std::nullopt;
}

// `variable` is without "resnet_v1_50/".
std::optional<std::string> ResnetName(absl::string_view variable) {
  if (absl::ConsumePrefix(&variable, "conv1/")) return Leaf(variable, "conv1", "bn1");
  if (absl::ConsumePrefix(&variable, "logits/")) return Leaf(variable, "fc", "");
  const std::vector<absl::string_view> parts = absl::StrSplit(variable, absl::MaxSplits('/', 4));
  int block = 0, unit = 0;
  if (parts.size() != 5 || !ParseNumber(parts[0], "block", &block) ||
      !ParseNumber(parts[1], "unit_", &unit) || parts[2] != "bottleneck_v1") {
    return std::nullopt;
  }
  const std::string module = absl::StrCat("layer", block, ".", unit - 1, ".");
  int convolution = 0;
  if (parts[3] == "shortcut") return Pair(parts[4], module + "downsample");
  if (!ParseNumber(parts[3], "conv", &convolution)) return std::nullopt;
  return Leaf(parts[4], absl::StrCat(module, "conv", convolution),
              absl::StrCat(module, "bn", convolution));
}

// Returns the place of a convolution in torchvision's list of modules. Each convolution is followed
// by its ReLU, and the last one of a block also by a pool. `block` and `unit` are counted from 1.
int VggPlace(int block, int unit, const TensorSource& source) {
  int place = 0;
  for (int before = 1; before < block; ++before) {
    while (source.Find(absl::StrCat("features.", place, ".weight")) != nullptr) place += 2;
    ++place;
  }
  return place + 2 * (unit - 1);
}

// `variable` is without "vgg_16/".
std::optional<std::string> VggName(absl::string_view variable, const TensorSource& source) {
  if (absl::ConsumePrefix(&variable, "fc6/")) return Leaf(variable, "classifier.0", "");
  if (absl::ConsumePrefix(&variable, "fc7/")) return Leaf(variable, "classifier.3", "");
  if (absl::ConsumePrefix(&variable, "fc8/")) return Leaf(variable, "classifier.6", "");
  const std::vector<absl::string_view> parts = absl::StrSplit(variable, '/');
  int block = 0, unit = 0;
  if (parts.size() != 3 || !ParseNumber(parts[0], "conv", &block) ||
      !ParseNumber(parts[1], absl::StrCat(parts[0], "_"), &unit)) {
    return std::nullopt;
  }
  return Leaf(parts[2], absl::StrCat("features.", VggPlace(block, unit, source)), "");
}

// The second convolution is in the first block or in the second one. AlexNet and SqueezeNet have
// another layer there, and VGG with batch norm has weights at place 1.
bool IsVgg(const TensorSource& source) {
  const SourceTensor* const first = source.Find("features.0.weight");
  return first != nullptr && first->shape.size() == 4 && first->shape[2] == 3 &&
         source.Find("features.1.weight") == nullptr &&
         (source.Find("features.2.weight") != nullptr ||
          source.Find("features.3.weight") != nullptr);
}

}  // namespace

bool IsTorchvision(const TensorSource& source) {
  const bool mobilenet = source.Find("features.0.0.weight") != nullptr;
  return (mobilenet && source.Find("features.18.1.running_var") != nullptr) ||
         (mobilenet && source.Find("features.1.block.0.0.weight") != nullptr) ||
         (source.Find("layer1.0.conv1.weight") != nullptr &&
          source.Find("bn1.running_var") != nullptr) ||
         IsVgg(source);
}

std::optional<std::string> TorchvisionName(absl::string_view variable, const TensorSource& source) {
  const bool third = source.Find("features.1.block.0.0.weight") != nullptr;
  const bool resnet = source.Find("layer1.0.conv1.weight") != nullptr;
  if (absl::ConsumePrefix(&variable, "MobilenetV2/")) {
    return third || resnet ? std::nullopt : MobilenetV2Name(variable);
  }
  if (absl::ConsumePrefix(&variable, "MobilenetV3/")) {
    return third ? MobilenetV3Name(variable, source) : std::nullopt;
  }
  const absl::string_view in_scope = variable.substr(variable.find('/') + 1);
  if (absl::StartsWith(variable, "vgg_")) {
    return IsVgg(source) ? VggName(in_scope, source) : std::nullopt;
  }
  if (!resnet || !absl::StartsWith(variable, "resnet_v1_")) return std::nullopt;
  return ResnetName(in_scope);
}

bool IsTorchvisionDense(absl::string_view tensor) {
  return absl::StartsWith(tensor, "classifier.") || absl::StartsWith(tensor, "fc.");
}

float TorchvisionEpsilon(const TensorSource& source) {
  return source.Find("features.1.block.0.0.weight") != nullptr ? 0.001f : 0.00001f;
}

}  // namespace pushpull
