#include "common/model/model_layout.h"

#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/repeated_field.h"

#include "common/model/classifier.h"
#include "common/model/ssd/ssd_network.h"

namespace pushpull {
namespace {

// A list of regular expressions that match at the start of a name. It remembers which of them
// matched a name, and which would have matched one further on.
class NamePatterns {
 public:
  NamePatterns(absl::string_view field,
               const google::protobuf::RepeatedPtrField<std::string>& patterns) {
    for (int i = 0; i < patterns.size(); ++i) {
      patterns_.push_back(
          {absl::StrCat(field, "[", i, "] \"", patterns[i], "\""), std::regex(patterns[i]),
           absl::StrContains(patterns[i], "|") ? absl::StrCat(".*(", patterns[i], ")")
                                               : absl::StrCat(".*", patterns[i])});
    }
  }

  bool empty() const { return patterns_.empty(); }

  bool Match(const std::string& name) {
    bool any = false;
    for (Pattern& pattern : patterns_) {
      if (std::regex_search(name, pattern.expression, std::regex_constants::match_continuous)) {
        pattern.used = true;
        any = true;
      } else if (!pattern.used && pattern.found_within.empty() &&
                 std::regex_search(name, pattern.expression)) {
        pattern.found_within = name;
      }
    }
    return any;
  }

  void WarnUnused() const {
    for (const Pattern& pattern : patterns_) {
      if (pattern.used) continue;
      LOG(WARNING) << pattern.label << " matches no trainable variable"
                   << (pattern.found_within.empty()
                           ? ""
                           : absl::StrCat(" at the start of its name, but occurs within ",
                                          pattern.found_within, "; write \"", pattern.anywhere,
                                          "\" to match there too"));
    }
  }

 private:
  struct Pattern {
    std::string label;
    std::regex expression;
    std::string anywhere;  // the pattern with which names match that contain this one
    bool used = false;
    std::string found_within{};  // the first name that it matches, but not at the start
  };
  std::vector<Pattern> patterns_;
};

// Where train_config.bias_grad_multiplier looks for biases, as the legacy trainer does.
constexpr char kBiases[] = "/biases";

// Warns if bias_grad_multiplier has found no biases, or if nothing is left to train.
void WarnOfNoEffect(const config::TrainConfig& train_config,
                    const std::vector<VariableSpec>& variables) {
  int trainable = 0;
  int frozen = 0;
  bool has_biases = false;
  for (const VariableSpec& variable : variables) {
    if (variable.kind != VariableKind::kTrainable) continue;
    ++trainable;
    frozen += variable.frozen ? 1 : 0;
    has_biases |= absl::StrContains(variable.name, kBiases);
  }
  if (train_config.bias_grad_multiplier() != 0.0f && !has_biases) {
    LOG(WARNING) << "train_config.bias_grad_multiplier has no effect: no trainable variable has \""
                 << kBiases
                 << "\" in its name; programs can declare a learning_rate_multiplier for their "
                    "biases instead";
  }
  if (trainable > 0 && frozen == trainable) {
    LOG(WARNING) << "nothing is left to train: all " << trainable
                 << " trainable variables are frozen (train_config.freeze_variables, "
                    "update_trainable_variables, or the program's own declaration)";
  }
}

// Applies train_config to the variables and lays them out. `variables` has passed
// VariableLayout::Create before, or is known to pass it.
VariableLayout LayOut(const config::TrainConfig& train_config,
                      std::vector<VariableSpec> variables) {
  NamePatterns update("train_config.update_trainable_variables",
                      train_config.update_trainable_variables());
  NamePatterns freeze("train_config.freeze_variables", train_config.freeze_variables());
  for (VariableSpec& variable : variables) {
    if (variable.kind != VariableKind::kTrainable) continue;
    if (!train_config.add_regularization_loss()) variable.l2_weight = 0.0f;
    const bool scales =
        train_config.bias_grad_multiplier() != 0.0f && absl::StrContains(variable.name, kBiases);
    variable.gradient_multiplier = scales ? train_config.bias_grad_multiplier() : 1.0f;
    const bool excluded = !update.empty() && !update.Match(variable.name);
    const bool frozen = freeze.Match(variable.name);
    variable.frozen = variable.frozen || excluded || frozen;
  }
  update.WarnUnused();
  freeze.WarnUnused();
  WarnOfNoEffect(train_config, variables);
  absl::StatusOr<VariableLayout> layout = VariableLayout::Create(std::move(variables));
  CHECK(layout.ok()) << layout.status();
  return *std::move(layout);
}

}  // namespace

NetworkSpec BuildNetworkSpec(const config::DetectionModel& model) {
  if (model.has_ssd()) return BuildSsd(model.ssd());
  CHECK(model.has_classifier());
  return BuildClassifier(model.classifier());
}

int NumClasses(const config::DetectionModel& model) {
  return model.has_ssd() ? model.ssd().num_classes() : model.classifier().num_classes();
}

VariableLayout BuildVariableLayout(const config::TrainEvalPipelineConfig& config) {
  return LayOut(config.train_config(), BuildNetworkSpec(config.model()).variables);
}

VariableLayout BuildExternalLayout(const config::TrainConfig& train_config,
                                   const VariableLayout& declared) {
  return LayOut(train_config, declared.variables());
}

}  // namespace pushpull
