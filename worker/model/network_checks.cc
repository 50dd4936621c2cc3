// Tested by tests/worker/model/network_test.cc.
#include "worker/model/network_checks.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "worker/model/network_memory.h"

namespace pushpull {
namespace {

absl::Status GraphError(const LayerSpec& layer, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("layer ", layer.scope, " ", problem));
}

// The box layer must give kBoxCodeSize values per anchor, the class layer one per class and one for
// the background, on a map of the head's size.
absl::Status CheckHead(const NetworkSpec& spec, const DetectionHead& head) {
  const int columns[] = {kBoxCodeSize, spec.detection->num_classes + 1};
  const int layers[] = {head.box_layer, head.class_layer};
  for (int i = 0; i < 2; ++i) {
    if (layers[i] < 0 || layers[i] >= static_cast<int>(spec.layers.size())) {
      return absl::InvalidArgumentError("a detection head names a layer that does not exist");
    }
    const FeatureShape expected{head.height, head.width, head.anchors_per_location * columns[i]};
    if (!(spec.layers[layers[i]].output_shape == expected)) {
      return GraphError(spec.layers[layers[i]], "does not have the shape of a detection head");
    }
  }
  return absl::OkStatus();
}

// Output layers must have no batch norm, activation or residual link and must not be read by any
// layer. Every other layer must be read.
absl::Status CheckOutputs(const NetworkSpec& spec) {
  if (spec.detection.has_value()) {
    for (const DetectionHead& head : spec.detection->heads) {
      PP_RETURN_IF_ERROR(CheckHead(spec, head));
    }
  } else if (!(spec.layers.back().output_shape == FeatureShape{1, 1, spec.num_classes})) {
    return GraphError(spec.layers.back(), "does not give one score per class");
  }
  std::vector<int> readers = FindLastReaders(spec);
  for (const int l : OutputLayers(spec)) {
    const LayerSpec& layer = spec.layers[l];
    if (readers[l] != LayerSpec::kNone || layer.batch_norm.has_value() ||
        layer.activation != ActivationFunction::kNone || layer.residual != LayerSpec::kNone) {
      return GraphError(layer,
                        "is an output, but has batch norm, an activation or a residual link, or is "
                        "read by another layer");
    }
    readers[l] = l;
  }
  const auto unread = std::find(readers.begin(), readers.end(), LayerSpec::kNone);
  if (unread == readers.end()) return absl::OkStatus();
  return GraphError(spec.layers[unread - readers.begin()], "is neither read nor an output");
}

}  // namespace

absl::Status CheckGraph(const NetworkSpec& spec) {
  if (spec.layers.empty()) return absl::InvalidArgumentError("the network has no layers");
  const std::vector<int> last_readers = FindLastReaders(spec);
  std::vector<int> residual_readers(spec.layers.size(), 0);
  for (int l = 0; l < static_cast<int>(spec.layers.size()); ++l) {
    const LayerSpec& layer = spec.layers[l];
    if (layer.input < LayerSpec::kImage || layer.input >= l) {
      return GraphError(layer, "reads no earlier layer");
    }
    const FeatureShape& input =
        layer.input == LayerSpec::kImage ? spec.input : spec.layers[layer.input].output_shape;
    if (!(layer.input_shape == input)) {
      return GraphError(layer, "has an input shape that is not the output shape of its input");
    }
    if (layer.residual != LayerSpec::kNone) {
      if (layer.residual < 0 || layer.residual >= l || ++residual_readers[layer.residual] > 1) {
        return GraphError(layer,
                          "has a residual link to a layer that is not an earlier one, or that has "
                          "another such link");
      }
      if (layer.activation != ActivationFunction::kNone ||
          !(spec.layers[layer.residual].output_shape == layer.output_shape)) {
        return GraphError(layer,
                          "has both a residual link and an activation, or a link of another shape");
      }
      if (last_readers[layer.residual] > l) {
        return GraphError(layer, "has a residual link to a layer that a later one reads");
      }
    }
    if (layer.kind == LayerKind::kDepthwise && layer.has_biases) {
      return GraphError(layer, "is depthwise and has biases");
    }
    if (layer.dropout_keep_probability < 1.0f &&
        (layer.input == LayerSpec::kImage || layer.kind == LayerKind::kGlobalAveragePool)) {
      return GraphError(layer, "has dropout on the image or before a pool");
    }
  }
  return CheckOutputs(spec);
}

}  // namespace pushpull
