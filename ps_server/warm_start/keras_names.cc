#include "ps_server/warm_start/keras_names.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace pushpull {
namespace {

// A tensor that tells Keras 3's MobileNetV3 from that of Keras 2.
constexpr char kKeras3MobilenetV3[] = "expanded_conv_depthwise_bn/beta";
constexpr char kSharedPredictor[] = "WeightSharedConvolutionalBoxPredictor";

// A variable's name in two parts: "MobilenetV2/Conv" and "BatchNorm/gamma" or "weights".
struct LayerVariable {
  absl::string_view layer;
  absl::string_view leaf;
};

LayerVariable SplitVariable(absl::string_view variable) {
  size_t slash = variable.find("/BatchNorm/");
  if (slash == absl::string_view::npos) slash = variable.rfind('/');
  if (slash == absl::string_view::npos) return {absl::string_view(), variable};
  return {variable.substr(0, slash), variable.substr(slash + 1)};
}

// Translates the leaf of a layer whose convolution and batch norm are two layers in Keras.
std::optional<std::string> Leaf(absl::string_view leaf, const std::string& convolution,
                                const std::string& norm) {
  if (leaf == "weights") return convolution + "/kernel";
  if (leaf == "depthwise_weights") return convolution + "/depthwise_kernel";
  if (leaf == "pointwise_weights") return convolution + "/pointwise_kernel";
  if (leaf == "biases") return convolution + "/bias";
  if (absl::ConsumePrefix(&leaf, "BatchNorm/")) return absl::StrCat(norm, "/", leaf);
  return std::nullopt;
}

// A layer "X" whose batch norm is "X" and an ending.
std::optional<std::string> Pair(absl::string_view leaf, const std::string& layer,
                                absl::string_view ending) {
  return Leaf(leaf, layer, absl::StrCat(layer, ending));
}

// Consumes `prefix` and a number after it.
bool ConsumeNumbered(absl::string_view* text, absl::string_view prefix, std::string* number) {
  absl::string_view rest = *text;
  if (!absl::ConsumePrefix(&rest, prefix)) return false;
  size_t digits = 0;
  while (digits < rest.size() && absl::ascii_isdigit(rest[digits])) ++digits;
  if (digits == 0) return false;
  *number = std::string(rest.substr(0, digits));
  *text = rest.substr(digits);
  return true;
}

// The layers between a backbone and the predictors: "X_conv" and "X_batchnorm", or with a separable
// convolution "X_depthwise_conv" and "X_batchnorm". A projection is one layer, "X".
std::optional<std::string> MapLayer(const LayerVariable& variable, const std::string& scope,
                                    const TensorSource& source) {
  const std::string layer = absl::StrCat(scope, variable.layer);
  const bool separable =
      variable.leaf == "pointwise_weights" ||
      (variable.leaf == "depthwise_weights" && !absl::EndsWith(variable.layer, "_depthwise"));
  const std::optional<std::string> name =
      absl::StartsWith(variable.layer, "projection_")
          ? Pair(variable.leaf, layer, "")
          : Leaf(variable.leaf, layer + (separable ? "_depthwise_conv" : "_conv"),
                 layer + "_batchnorm");
  if (!name.has_value()) return std::nullopt;
  for (const SourceTensor& tensor : source.tensors()) {
    if (absl::EndsWith(tensor.name, *name)) return tensor.name;
  }
  return name->substr(1);
}

std::optional<std::string> MobilenetV1Name(const LayerVariable& variable) {
  absl::string_view layer = variable.layer;
  std::string number;
  if (layer == "Conv2d_0") return Pair(variable.leaf, "conv1", "_bn");
  if (!ConsumeNumbered(&layer, "Conv2d_", &number)) return std::nullopt;
  if (layer == "_depthwise") return Pair(variable.leaf, "conv_dw_" + number, "_bn");
  if (layer == "_pointwise") return Pair(variable.leaf, "conv_pw_" + number, "_bn");
  return std::nullopt;
}

std::optional<std::string> MobilenetV2Name(const LayerVariable& variable) {
  absl::string_view layer = variable.layer;
  std::string block = "expanded_conv", number;
  if (layer == "Conv") return Leaf(variable.leaf, "Conv1", "bn_Conv1");
  if (layer == "Conv_1") return Pair(variable.leaf, "Conv_1", "_bn");
  if (layer == "Logits/Conv2d_1c_1x1") return Pair(variable.leaf, "predictions", "");
  if (ConsumeNumbered(&layer, "expanded_conv_", &number)) {
    block = "block_" + number;
  } else if (!absl::ConsumePrefix(&layer, "expanded_conv")) {
    return std::nullopt;
  }
  if (layer != "/expand" && layer != "/depthwise" && layer != "/project") return std::nullopt;
  return Pair(variable.leaf, absl::StrCat(block, "_", layer.substr(1)), "_BN");
}

// Keras 2 has slim's names, but a shorter one for the class scores. Keras 3 writes them in lower
// case and without slashes: "expanded_conv_1_depthwise".
std::optional<std::string> MobilenetV3Name(const LayerVariable& variable,
                                           const TensorSource& source) {
  absl::string_view layer = variable.layer;
  absl::ConsumeSuffix(&layer, "/Conv2d_1c_1x1");
  if (source.Find(kKeras3MobilenetV3) == nullptr) {
    return Pair(variable.leaf, std::string(layer), "/BatchNorm");
  }
  const std::string flat = absl::StrReplaceAll(absl::AsciiStrToLower(layer), {{"/", "_"}});
  return Pair(variable.leaf, flat, "_bn");
}

// Keras counts the stages of a ResNet from the first convolution.
std::optional<std::string> ResnetName(const LayerVariable& variable) {
  absl::string_view layer = variable.layer;
  if (layer == "conv1") return Leaf(variable.leaf, "conv1_conv", "conv1_bn");
  std::string block, unit, convolution = "0";
  int stage = 0;
  if (!ConsumeNumbered(&layer, "block", &block) || !ConsumeNumbered(&layer, "/unit_", &unit) ||
      !absl::ConsumePrefix(&layer, "/bottleneck_v1/") || !absl::SimpleAtoi(block, &stage)) {
    return std::nullopt;
  }
  if (layer != "shortcut" && !ConsumeNumbered(&layer, "conv", &convolution)) return std::nullopt;
  const std::string name = absl::StrCat("conv", stage + 1, "_block", unit, "_", convolution);
  return Leaf(variable.leaf, name + "_conv", name + "_bn");
}

std::optional<std::string> BackboneName(absl::string_view variable, const TensorSource& source) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(variable, absl::MaxSplits('/', 1));
  LayerVariable layer = SplitVariable(parts.second);
  if (absl::ConsumePrefix(&layer.layer, "fpn/")) {
    const bool coarse = absl::StartsWith(layer.layer, "bottom_up_");
    return MapLayer(layer, coarse ? "/" : "/FeatureMaps/top_down/", source);
  }
  if (absl::StartsWith(layer.layer, "layer_") || absl::StrContains(layer.layer, "_Conv2d_")) {
    return MapLayer(layer, "/FeatureMaps/", source);
  }
  if (parts.first == "MobilenetV1") return MobilenetV1Name(layer);
  if (parts.first == "MobilenetV2") return MobilenetV2Name(layer);
  if (parts.first == "MobilenetV3") return MobilenetV3Name(layer, source);
  if (absl::StartsWith(parts.first, "resnet_v1_")) return ResnetName(layer);
  return std::nullopt;
}

// The predictor that all maps share. Its towers have the same names in both versions.
std::optional<std::string> SharedPredictorName(absl::string_view rest) {
  const LayerVariable variable = SplitVariable(rest);
  std::string layer = absl::StrCat(kSharedPredictor, "/");
  if (variable.layer == "BoxPredictor") {
    absl::StrAppend(&layer, "WeightSharedConvolutionalBoxHead/");
  } else if (variable.layer == "ClassPredictor") {
    absl::StrAppend(&layer, "WeightSharedConvolutionalClassHead/");
  }
  return Pair(variable.leaf, absl::StrCat(layer, variable.layer), "/BatchNorm");
}

// "BoxPredictor_2/ClassPredictor" is "BoxPredictor/ConvolutionalClassHead_2/ClassPredictor".
std::optional<std::string> PredictorName(const std::string& map, absl::string_view rest) {
  const LayerVariable variable = SplitVariable(rest);
  const auto head = [&](absl::string_view kind, absl::string_view norm) {
    return Pair(variable.leaf, absl::StrCat("BoxPredictor/", kind, "_", map, "/", variable.layer),
                norm);
  };
  if (absl::StartsWith(variable.layer, "BoxEncodingPredictor")) {
    return head("ConvolutionalBoxHead", "_batchnorm");
  }
  if (absl::StartsWith(variable.layer, "ClassPredictor")) {
    return head("ConvolutionalClassHead", "_batchnorm");
  }
  return head("SharedConvolutions", "_norm");
}

}  // namespace

bool IsKeras(const TensorSource& source) {
  if (source.Find("conv1_conv/kernel") != nullptr) {
    return source.Find("conv1_bn/gamma") != nullptr && source.Find("conv1_conv/bias") == nullptr;
  }
  const char* const first_layers[] = {"bn_Conv1/beta", "conv_dw_1_bn/beta",
                                      "expanded_conv/depthwise/BatchNorm/beta", kKeras3MobilenetV3};
  return std::any_of(std::begin(first_layers), std::end(first_layers),
                     [&source](const char* name) { return source.Find(name) != nullptr; });
}

std::optional<std::string> KerasName(absl::string_view variable, const TensorSource& source) {
  std::string map;
  std::optional<std::string> name;
  if (absl::ConsumePrefix(&variable, absl::StrCat(kSharedPredictor, "/"))) {
    name = SharedPredictorName(variable);
  } else if (ConsumeNumbered(&variable, "BoxPredictor_", &map)) {
    name = PredictorName(map, variable.substr(1));
  } else {
    name = BackboneName(variable, source);
  }
  if (!name.has_value() || source.Find(*name) != nullptr) return name;
  // Keras 3 calls the weights of a depthwise convolution "kernel" too.
  absl::string_view layer = *name;
  if (!absl::ConsumeSuffix(&layer, "/depthwise_kernel")) return name;
  const std::string kernel = absl::StrCat(layer, "/kernel");
  return source.Find(kernel) != nullptr ? kernel : name;
}

}  // namespace pushpull
