#include "common/model/model_layout.h"

#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/repeated_field.h"

#include "common/base/status_macros.h"
#include "common/model/mobilenet_v2.h"
#include "common/model/ssd_mobilenet.h"

namespace pushpull {
namespace {

// A list of regular expressions that match at the start of a name. It remembers which were used.
class NamePatterns {
 public:
  static absl::StatusOr<NamePatterns> Compile(
      absl::string_view field, const google::protobuf::RepeatedPtrField<std::string>& patterns) {
    NamePatterns result;
    for (int i = 0; i < patterns.size(); ++i) {
      const std::string label = absl::StrCat(field, "[", i, "] \"", patterns[i], "\"");
      try {
        result.patterns_.push_back({label, std::regex(patterns[i]), false});
      } catch (const std::regex_error& error) {
        return absl::InvalidArgumentError(
            absl::StrCat(label, " is not a regular expression: ", error.what()));
      }
    }
    return result;
  }

  bool empty() const { return patterns_.empty(); }

  bool Match(const std::string& name) {
    bool any = false;
    for (Pattern& pattern : patterns_) {
      if (std::regex_search(name, pattern.expression, std::regex_constants::match_continuous)) {
        pattern.used = true;
        any = true;
      }
    }
    return any;
  }

  void WarnUnused() const {
    for (const Pattern& pattern : patterns_) {
      LOG_IF(WARNING, !pattern.used) << pattern.label << " matches no trainable variable";
    }
  }

 private:
  struct Pattern {
    std::string label;
    std::regex expression;
    bool used;
  };
  std::vector<Pattern> patterns_;
};

absl::Status ApplyTrainConfig(const config::TrainConfig& train_config,
                              std::vector<VariableSpec>* variables) {
  PP_ASSIGN_OR_RETURN(NamePatterns update,
                      NamePatterns::Compile("train_config.update_trainable_variables",
                                            train_config.update_trainable_variables()));
  PP_ASSIGN_OR_RETURN(NamePatterns freeze, NamePatterns::Compile("train_config.freeze_variables",
                                                                 train_config.freeze_variables()));
  for (VariableSpec& variable : *variables) {
    if (variable.kind != VariableKind::kTrainable) continue;
    if (!train_config.add_regularization_loss()) variable.l2_weight = 0.0f;
    if (train_config.bias_grad_multiplier() != 0.0f &&
        absl::StrContains(variable.name, "/biases")) {
      variable.learning_rate_multiplier = train_config.bias_grad_multiplier();
    }
    const bool excluded = !update.empty() && !update.Match(variable.name);
    const bool frozen = freeze.Match(variable.name);
    variable.frozen = excluded || frozen;
  }
  update.WarnUnused();
  freeze.WarnUnused();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<NetworkSpec> BuildNetworkSpec(const config::DetectionModel& model) {
  if (model.has_ssd()) return BuildSsdMobilenet(model.ssd());
  if (!model.has_classifier()) {
    return absl::InvalidArgumentError(
        "the model is missing: expected model { ssd { ... } } or model { classifier { ... } }");
  }
  const std::string& type = model.classifier().feature_extractor().type();
  if (type != "mobilenet_v2") {
    return absl::InvalidArgumentError(absl::StrCat("model.classifier.feature_extractor.type is \"",
                                                   type, "\", expected \"mobilenet_v2\""));
  }
  return BuildMobilenetV2(model.classifier());
}

int NumClasses(const config::DetectionModel& model) {
  return model.has_ssd() ? model.ssd().num_classes() : model.classifier().num_classes();
}

absl::StatusOr<VariableLayout> BuildVariableLayout(const config::TrainEvalPipelineConfig& config) {
  PP_ASSIGN_OR_RETURN(const NetworkSpec network, BuildNetworkSpec(config.model()));
  std::vector<VariableSpec> variables = DeclareVariables(network);
  PP_RETURN_IF_ERROR(ApplyTrainConfig(config.train_config(), &variables));
  return VariableLayout::Create(std::move(variables));
}

}  // namespace pushpull
