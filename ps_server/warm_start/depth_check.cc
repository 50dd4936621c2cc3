// Tested by tests/ps_server/warm_start/restore_test.cc.
#include "ps_server/warm_start/depth_check.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"

#include "common/model/model_layout.h"
#include "common/model/network_spec.h"

namespace pushpull {
namespace {

using SourceName = absl::FunctionRef<std::optional<std::string>(const std::string&)>;

// Returns groups of parts of types. The types of a group differ in this part only, and their
// networks in depth only.
const std::vector<std::vector<std::string>>& Depths() {
  static const auto* const depths =
      new std::vector<std::vector<std::string>>{{"resnet_v1_50", "resnet_v1_101", "resnet_v1_152"},
                                                {"ssd_resnet50", "ssd_resnet101", "ssd_resnet152"},
                                                {"mobilenet_v3_small", "mobilenet_v3_large"},
                                                {"vgg_a", "vgg_16", "vgg_19"}};
  return *depths;
}

// The parts of "resnet_v1_50/block3/unit_6/bottleneck_v1/conv1/weights":
// "resnet_v1_50/block3/unit_", 6 and "/bottleneck_v1/conv1/weights".
struct UnitVariable {
  std::string block;
  int unit = 0;
  std::string rest;
};

// `name` is that of a unit without its number: "unit_", "expanded_conv_", "IBN_" or, in VGG,
// "conv3_".
bool IsUnit(absl::string_view name) {
  return name == "unit_" || name == "expanded_conv_" || name == "IBN_" ||
         (name.size() == 6 && absl::StartsWith(name, "conv") && absl::ascii_isdigit(name[4]) &&
          name[5] == '_');
}

std::optional<UnitVariable> ParseUnit(absl::string_view variable) {
  for (size_t begin = 0; begin < variable.size();) {
    const size_t end = std::min(variable.find('/', begin), variable.size());
    const absl::string_view part = variable.substr(begin, end - begin);
    const size_t number = part.find_last_not_of("0123456789") + 1;
    int unit = 0;
    if (IsUnit(part.substr(0, number)) && absl::SimpleAtoi(part.substr(number), &unit)) {
      return UnitVariable{std::string(variable.substr(0, begin + number)), unit,
                          std::string(variable.substr(end))};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

// A unit of the source that would follow the last one of a block.
struct UnitBeyond {
  std::string tensor;  // of the unit, in the source
  std::string last;    // the scope of the block's last unit
};

std::optional<UnitBeyond> FindUnitBeyond(const NetworkSpec& network, const TensorSource& source,
                                         SourceName source_name) {
  std::set<std::string> units;
  for (const VariableSpec& variable : network.variables) {
    const std::optional<UnitVariable> parts = ParseUnit(variable.name);
    if (parts.has_value()) units.insert(absl::StrCat(parts->block, parts->unit));
  }
  for (const VariableSpec& variable : network.variables) {
    const std::optional<UnitVariable> parts = ParseUnit(variable.name);
    if (!parts.has_value()) continue;
    const std::string next = absl::StrCat(parts->block, parts->unit + 1);
    if (units.count(next) > 0) continue;
    const std::optional<std::string> tensor = source_name(next + parts->rest);
    if (!tensor.has_value() || source.Find(*tensor) == nullptr) continue;
    return UnitBeyond{*tensor, absl::StrCat(parts->block, parts->unit)};
  }
  return std::nullopt;
}

// Returns the model with another type of feature extractor.
config::DetectionModel WithType(config::DetectionModel model, const std::string& type) {
  if (model.has_ssd()) {
    model.mutable_ssd()->mutable_feature_extractor()->set_type(type);
  } else {
    model.mutable_classifier()->mutable_feature_extractor()->set_type(type);
  }
  return model;
}

// Returns the type of a network that has this tensor of the source and as many units as the source;
// "" if none is known.
std::string FittingType(const config::DetectionModel& model, const std::string& type,
                        const std::string& tensor, const TensorSource& source,
                        SourceName source_name) {
  for (const std::vector<std::string>& family : Depths()) {
    for (const std::string& depth : family) {
      if (!absl::StrContains(type, depth)) continue;
      for (const std::string& other : family) {
        const std::string candidate = absl::StrReplaceAll(type, {{depth, other}});
        const NetworkSpec network = BuildNetworkSpec(WithType(model, candidate));
        const bool has_tensor = std::any_of(
            network.variables.begin(), network.variables.end(),
            [&](const VariableSpec& variable) { return source_name(variable.name) == tensor; });
        if (has_tensor && !FindUnitBeyond(network, source, source_name)) return candidate;
      }
    }
  }
  return "";
}

}  // namespace

absl::Status CheckDepth(const config::DetectionModel& model, const TensorSource& source,
                        SourceName source_name) {
  const std::optional<UnitBeyond> beyond =
      FindUnitBeyond(BuildNetworkSpec(model), source, source_name);
  if (!beyond.has_value()) return absl::OkStatus();
  const std::string& type = model.has_ssd() ? model.ssd().feature_extractor().type()
                                            : model.classifier().feature_extractor().type();
  const std::string fitting = FittingType(model, type, beyond->tensor, source, source_name);
  return absl::FailedPreconditionError(absl::StrCat(
      "train_config.fine_tune_checkpoint: ", source.describe(),
      " has the weights of a deeper network than feature_extractor.type \"", type, "\": it has ",
      beyond->tensor, ", which would follow ", beyond->last,
      ", the last unit of this block here. The layers after it were trained on the output of the "
      "missing units. ",
      fitting.empty() ? "Take" : absl::StrCat("Set the type to \"", fitting, "\", or take"),
      " the weights of a network of this depth"));
}

}  // namespace pushpull
