#include "ps_server/warm_start/restore.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

#include "common/base/status_macros.h"
#include "common/model/model_layout.h"
#include "common/model/network_spec.h"
#include "ps_server/warm_start/depth_check.h"
#include "ps_server/warm_start/keras_names.h"
#include "ps_server/warm_start/pixel_values.h"
#include "ps_server/warm_start/stride_note.h"
#include "ps_server/warm_start/torchvision_names.h"

namespace pushpull {
namespace {

constexpr char kExtractor[] = "FeatureExtractor/";

// What a detector takes: its extractor from a detector, its extractor from a classifier, or all
// variables.
enum class CheckpointType { kDetection, kClassification, kFull };

absl::StatusOr<CheckpointType> ResolveType(const config::TrainConfig& train) {
  const std::string& type = train.fine_tune_checkpoint_type();
  if (type == "detection") return CheckpointType::kDetection;
  if (type == "classification") return CheckpointType::kClassification;
  if (type == "full") return CheckpointType::kFull;
  if (!type.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("train_config.fine_tune_checkpoint_type is \"", type,
                     "\", expected \"detection\", \"classification\" or \"full\""));
  }
  return train.from_detection_checkpoint() ? CheckpointType::kDetection
                                           : CheckpointType::kClassification;
}

// Transposes PyTorch's weights [out, in, k, k] to [k, k, in, out], or for a depthwise convolution
// [c, 1, k, k] to [k, k, c, 1]. `shape` is the shape of the result. The weights [out, in * k * k]
// of a dense layer that reads a map channel by channel have the same order as [out, in, k, k].
void TransposeWeights(const std::vector<int64_t>& shape, bool depthwise,
                      const std::vector<float>& from, absl::Span<float> to) {
  const int64_t inputs = shape[2];
  const int64_t outputs = shape[3];
  size_t at = 0;
  for (int64_t y = 0; y < shape[0]; ++y) {
    for (int64_t x = 0; x < shape[1]; ++x) {
      for (int64_t in = 0; in < inputs; ++in) {
        for (int64_t out = 0; out < outputs; ++out) {
          const int64_t outer = depthwise ? in : out * inputs + in;
          to[at++] = from[(outer * shape[0] + y) * shape[1] + x];
        }
      }
    }
  }
}

// Returns the shape that PyTorch gives to the weights of this variable. `dense`: the tensor is of a
// dense layer, which is a convolution here whose window is the whole map.
std::vector<int64_t> TorchShape(const VariableSpec& variable, bool depthwise, bool dense) {
  const std::vector<int64_t>& s = variable.shape;
  if (s.size() != 4) return s;
  if (dense) return {s[3], s[2] * s[0] * s[1]};
  return depthwise ? std::vector<int64_t>{s[2], 1, s[0], s[1]}
                   : std::vector<int64_t>{s[3], s[2], s[0], s[1]};
}

// Returns the shape that Keras gives to the weights of a dense layer: without the spatial
// dimensions.
std::vector<int64_t> KerasDenseShape(const VariableSpec& variable) {
  const std::vector<int64_t>& s = variable.shape;
  if (s.size() != 4 || s[0] != 1 || s[1] != 1) return s;
  return {s[2], s[3]};
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

// The variables of the convolution that reads the image, and of the batch norm after it.
struct FirstLayer {
  int weights = op::kNoVariable;
  int biases = op::kNoVariable;
  int moving_mean = op::kNoVariable;
};

FirstLayer FirstLayerOf(const NetworkSpec& network) {
  FirstLayer layer;
  int first = Node::kImage;
  for (size_t i = 0; i < network.nodes.size(); ++i) {
    const Node& node = network.nodes[i];
    if (node.inputs.size() != 1 || node.inputs[0] != first) continue;
    if (const auto* convolution = std::get_if<op::Convolution>(&node.op)) {
      if (first != Node::kImage) continue;
      first = static_cast<int>(i);
      layer.weights = convolution->weights;
      layer.biases = convolution->biases;
    } else if (const auto* norm = std::get_if<op::BatchNorm>(&node.op)) {
      layer.moving_mean = norm->moving_mean;
    }
  }
  return layer;
}

// Returns whether TensorFlow trains this network on kChannelMeanPixels. It trains the other ones on
// ours.
bool HasChannelMeanPixels(absl::string_view variable) {
  absl::ConsumePrefix(&variable, kExtractor);
  return absl::StartsWith(variable, "vgg_") || absl::StartsWith(variable, "resnet_v1_");
}

constexpr char kAbsent[] = "not in the checkpoint";

class Restorer {
 public:
  Restorer(const VariableLayout& layout, const config::TrainEvalPipelineConfig& config,
           CheckpointType type, const TensorSource& source)
      : layout_(layout),
        network_(BuildNetworkSpec(config.model())),
        detector_(config.model().has_ssd()),
        all_variables_(type == CheckpointType::kFull ||
                       config.train_config().load_all_detection_checkpoint_vars()),
        type_(type),
        source_(source),
        torchvision_(IsTorchvision(source)),
        keras_(IsKeras(source)) {}

  absl::StatusOr<RestoreReport> Run(absl::Span<float> flat) const {
    RestoreReport report;
    report.source = source_.describe();
    for (int64_t i = 0; i < layout_.num_variables(); ++i) {
      RestoreRow row;
      row.variable = layout_.variables()[i].name;
      if (const std::optional<std::string> name = SourceName(row.variable); name.has_value()) {
        row.source_name = *name;
        PP_RETURN_IF_ERROR(
            RestoreOne(i, flat.subspan(layout_.offset(i), layout_.num_elements(i)), &row));
      }
      report.rows.push_back(std::move(row));
    }
    AdaptFirstLayer(flat, &report);
    return report;
  }

  // Returns the name of the tensor for the variable, or nullopt if the rules select none.
  std::optional<std::string> SourceName(const std::string& variable) const {
    absl::string_view name = variable;
    const bool extractor = absl::ConsumePrefix(&name, kExtractor);
    if (torchvision_) return TorchvisionName(name, source_);
    if (keras_) return IsSelected(extractor) ? KerasName(name, source_) : std::nullopt;
    if (!detector_) {
      if (source_.Find(variable) == nullptr &&
          source_.Find(absl::StrCat(kExtractor, variable)) != nullptr) {
        return absl::StrCat(kExtractor, variable);
      }
      return variable;
    }
    if (!IsSelected(extractor)) return std::nullopt;
    return type_ == CheckpointType::kClassification ? std::string(name) : variable;
  }

 private:
  // Makes up for other pixel values, if the first convolution was restored.
  void AdaptFirstLayer(absl::Span<float> flat, RestoreReport* report) const {
    const FirstLayer layer = FirstLayerOf(network_);
    const auto restored = [&](int variable) {
      return variable != op::kNoVariable && report->rows[variable].restored
                 ? flat.subspan(layout_.offset(variable), layout_.num_elements(variable))
                 : absl::Span<float>();
    };
    const absl::Span<float> weights = restored(layer.weights);
    const absl::Span<float> biases = restored(layer.biases);
    const absl::Span<float> moving_mean = restored(layer.moving_mean);
    if (weights.empty() || biases.empty() == moving_mean.empty()) return;
    const std::string& variable = layout_.variables()[layer.weights].name;
    if (!torchvision_ && !(source_.is_tensorflow() && HasChannelMeanPixels(variable))) return;
    const size_t outputs = std::max(biases.size(), moving_mean.size());
    const std::vector<double> missing =
        AdaptToOurPixels(torchvision_ ? kTorchvisionPixels : kChannelMeanPixels, weights, outputs);
    for (size_t o = 0; o < outputs; ++o) {
      if (!biases.empty()) biases[o] = static_cast<float>(biases[o] + missing[o]);
      if (!moving_mean.empty()) moving_mean[o] = static_cast<float>(moving_mean[o] - missing[o]);
    }
    report->notes.push_back(absl::StrCat(
        torchvision_ ? "torchvision's weights expect pixels that are normalised by the mean and "
                       "deviation of ImageNet; "
                     : "TensorFlow's weights of this network expect pixels from 0 to 255 from "
                       "which the mean of each channel is subtracted; ",
        "the first convolution and ", biases.empty() ? "the moving mean after it" : "its biases",
        " were changed so that they do the same for the pixels of this network, which are in "
        "[-1, 1]"));
  }

  // `extractor`: the variable is under FeatureExtractor/.
  bool IsSelected(bool extractor) const {
    if (!detector_ || extractor) return true;
    return all_variables_ && type_ != CheckpointType::kClassification;
  }

  absl::Status RestoreOne(int64_t index, absl::Span<float> values, RestoreRow* row) const {
    const VariableSpec& variable = layout_.variables()[index];
    const SourceTensor* const tensor = source_.Find(row->source_name);
    if (tensor == nullptr) {
      row->reason = kAbsent;
      return absl::OkStatus();
    }
    const bool transposed = torchvision_ && variable.shape.size() == 4;
    const bool depthwise = absl::EndsWith(variable.name, "/depthwise_weights");
    const bool dense = tensor->shape.size() == 2;
    const std::vector<int64_t> expected =
        transposed ? TorchShape(variable, depthwise, dense && IsTorchvisionDense(tensor->name))
        : keras_ && dense ? KerasDenseShape(variable)
                          : variable.shape;
    if (tensor->shape != expected) {
      row->reason = absl::StrCat("its shape there is ", ShapeText(tensor->shape), ", expected ",
                                 ShapeText(expected));
      return absl::OkStatus();
    }
    if (!tensor->unusable.empty()) {
      row->reason = tensor->unusable;
      return absl::OkStatus();
    }
    if (transposed) {
      std::vector<float> read(values.size());
      PP_RETURN_IF_ERROR(source_.Read(*tensor, absl::MakeSpan(read)));
      TransposeWeights(variable.shape, depthwise, read, values);
    } else {
      PP_RETURN_IF_ERROR(source_.Read(*tensor, values));
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isfinite(values[i])) continue;
      return absl::DataLossError(absl::StrCat("train_config.fine_tune_checkpoint: ", tensor->name,
                                              " in ", source_.describe(), " has the value ",
                                              values[i], ", which is not finite"));
    }
    row->restored = true;
    return absl::OkStatus();
  }

  const VariableLayout& layout_;
  const NetworkSpec network_;
  const bool detector_;
  const bool all_variables_;
  const CheckpointType type_;
  const TensorSource& source_;
  const bool torchvision_;
  const bool keras_;
};

std::string FirstNames(const std::vector<std::string>& names) {
  constexpr size_t kShown = 3;
  const size_t count = std::min(kShown, names.size());
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + count, ", "),
                      names.size() > kShown ? ", ..." : "");
}

// Returns the first two components of a name. The report counts variables by them.
std::string GroupOf(const std::string& variable) {
  size_t slash = variable.find('/');
  if (slash != std::string::npos) slash = variable.find('/', slash + 1);
  return variable.substr(0, slash);
}

// Adds a note if the network's batch norms have another epsilon than torchvision's.
void NoteEpsilon(const config::TrainEvalPipelineConfig& config, const TensorSource& source,
                 RestoreReport* report) {
  const float theirs = TorchvisionEpsilon(source);
  std::optional<float> other;
  ForEachBatchNorm(BuildNetworkSpec(config.model()), [&](const op::BatchNorm& norm) {
    if (report->rows[norm.moving_variance].restored && norm.epsilon != theirs) other = norm.epsilon;
  });
  if (!other.has_value()) return;
  report->notes.push_back(
      absl::StrCat("torchvision's batch norms have the epsilon ", theirs, ", these have ", *other,
                   "; set batch_norm.epsilon of conv_hyperparams to compute what they compute"));
}

// Returns the network that the restored weights come from; nullopt if it is not known, or if its
// strides cannot differ.
std::optional<NetworkSpec> NetworkOfWeights(const TensorSource& source,
                                            const RestoreReport& report) {
  if (!IsTorchvision(source)) return source.network();
  // torchvision's ResNet is the classifier of the same depth.
  for (const RestoreRow& row : report.rows) {
    absl::string_view name = absl::StripPrefix(row.variable, kExtractor);
    if (!row.restored || !absl::StartsWith(name, "resnet_v1_")) continue;
    config::DetectionModel model;
    config::Classifier* const classifier = model.mutable_classifier();
    classifier->set_num_classes(1);
    classifier->mutable_image_resizer()->mutable_fixed_shape_resizer();
    classifier->mutable_feature_extractor()->set_type(std::string(name.substr(0, name.find('/'))));
    return BuildNetworkSpec(model);
  }
  return std::nullopt;
}

// Adds a note if the network has other strides than the one that the weights come from.
void NoteStrides(const config::TrainEvalPipelineConfig& config, const TensorSource& source,
                 RestoreReport* report) {
  const std::optional<NetworkSpec> theirs = NetworkOfWeights(source, *report);
  if (!theirs.has_value()) return;
  std::string note = StrideNote(BuildNetworkSpec(config.model()), *theirs,
                                [&](int variable) { return report->rows[variable].restored; });
  if (!note.empty()) report->notes.push_back(std::move(note));
}

// The correction of moving statistics assumes that they began at mean 0 and variance 1.
absl::Status CheckCorrectedStatistics(const config::TrainEvalPipelineConfig& config,
                                      const RestoreReport& report) {
  absl::Status status;
  ForEachBatchNorm(BuildNetworkSpec(config.model()), [&](const op::BatchNorm& norm) {
    if (!norm.bias_corrected || norm.frozen) return;
    for (const int variable : {norm.moving_mean, norm.moving_variance}) {
      const RestoreRow& row = report.rows[variable];
      if (!row.restored) continue;
      status.Update(absl::FailedPreconditionError(absl::StrCat(
          "train_config.fine_tune_checkpoint brings ", row.variable,
          ", but batch_norm.bias_corrected_moving_statistics: true assumes that moving statistics "
          "begin at mean 0 and variance 1; remove the second field where conv_hyperparams of these "
          "layers has it")));
    }
  });
  return status;
}

}  // namespace

int RestoreReport::num_restored() const {
  return static_cast<int>(
      std::count_if(rows.begin(), rows.end(), [](const RestoreRow& row) { return row.restored; }));
}

std::string RestoreReport::ToString() const {
  std::map<std::string, int> restored, initialised;
  std::string skipped;
  int num_skipped = 0;
  for (const RestoreRow& row : rows) {
    if (row.restored) {
      ++restored[GroupOf(row.variable)];
    } else if (row.reason.empty()) {
      ++initialised[GroupOf(row.variable)];
    } else {
      ++num_skipped;
      absl::StrAppend(&skipped, "\n    ", row.variable, " (", row.source_name, "): ", row.reason);
    }
  }
  const auto groups = [](const std::map<std::string, int>& counts) {
    std::string text;
    for (const auto& [group, count] : counts) absl::StrAppend(&text, "\n    ", group, ": ", count);
    return text;
  };
  std::string text = absl::StrCat("from ", source, ": ", num_restored(), " of ", rows.size(),
                                  " variables\n  restored:", groups(restored),
                                  "\n  initialised (not to be restored):", groups(initialised),
                                  "\n  skipped, so initialised: ", num_skipped, skipped);
  for (const std::string& note : notes) absl::StrAppend(&text, "\n  note: ", note);
  return text;
}

absl::StatusOr<RestoreReport> RestoreForWarmStart(const VariableLayout& layout,
                                                  const config::TrainEvalPipelineConfig& config,
                                                  const TensorSource& source,
                                                  absl::Span<float> flat) {
  PP_ASSIGN_OR_RETURN(const CheckpointType type, ResolveType(config.train_config()));
  const Restorer restorer(layout, config, type, source);
  PP_ASSIGN_OR_RETURN(RestoreReport report, restorer.Run(flat));
  if (report.num_restored() > 0) {
    PP_RETURN_IF_ERROR(CheckDepth(config.model(), source, [&restorer](const std::string& variable) {
      return restorer.SourceName(variable);
    }));
    PP_RETURN_IF_ERROR(CheckCorrectedStatistics(config, report));
    if (IsTorchvision(source)) NoteEpsilon(config, source, &report);
    NoteStrides(config, source, &report);
    return report;
  }
  std::vector<std::string> reasons, absent, there;
  for (const RestoreRow& row : report.rows) {
    if (row.source_name.empty()) continue;
    std::vector<std::string>& list = row.reason == kAbsent ? absent : reasons;
    list.push_back(absl::StrCat(row.source_name, " (", row.reason, ")"));
  }
  // Those that are there and do not fit say more.
  reasons.insert(reasons.end(), absent.begin(), absent.end());
  for (const SourceTensor& tensor : source.tensors()) there.push_back(tensor.name);
  const std::string searched = reasons.empty()
                                   ? "it names no variable of this network"
                                   : absl::StrCat("it was searched for ", FirstNames(reasons));
  return absl::FailedPreconditionError(absl::StrCat(
      "train_config.fine_tune_checkpoint: nothing in ", source.describe(), " fits the model; ",
      searched, " and has ", FirstNames(there),
      ": see fine_tune_checkpoint_type and from_detection_checkpoint, or remove the field"));
}

}  // namespace pushpull
