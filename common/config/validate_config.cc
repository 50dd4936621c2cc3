// Tested by tests/common/config/load_config_test.cc.
#include "common/config/validate_config.h"

#include <algorithm>
#include <cstdint>
#include <regex>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/file_system.h"
#include "common/base/status_macros.h"
#include "common/config/augmentation_checks.h"
#include "common/config/effect_warnings.h"
#include "common/config/external_checks.h"
#include "common/config/field_checker.h"
#include "common/config/finite_check.h"
#include "common/config/layer_checks.h"
#include "common/config/model_checks.h"
#include "common/config/optimizer_checks.h"
#include "common/config/pipeline_config.h"
#include "common/config/reader_checks.h"
#include "common/config/schema_marks.h"

namespace pushpull {
namespace {

constexpr int kMaxPatternBytes = 1000;

void CheckPatterns(const google::protobuf::RepeatedPtrField<std::string>& patterns,
                   absl::string_view field, FieldChecker* checker) {
  for (int i = 0; i < patterns.size(); ++i) {
    if (patterns[i].empty()) {
      checker->Add(absl::StrCat(field, "[", i, "]"), "a regular expression", "\"\"",
                   "an empty one matches every name; TensorFlow's legacy trainer ignores it, so "
                   "remove it, or write \".*\" for all variables");
      continue;
    }
    // std::regex recurses once per bracket, so a long pattern could overflow the stack.
    if (patterns[i].size() > kMaxPatternBytes) {
      checker->Add(absl::StrCat(field, "[", i, "]"),
                   absl::StrCat("a regular expression of at most ", kMaxPatternBytes, " bytes"),
                   absl::StrCat(patterns[i].size(), " bytes"));
      continue;
    }
    try {
      const std::regex expression(patterns[i]);
    } catch (const std::regex_error& error) {
      checker->Add(absl::StrCat(field, "[", i, "]"), "a regular expression",
                   absl::StrCat("\"", patterns[i], "\""), error.what());
    }
  }
}

bool IsSync(const config::TrainConfig& config, const ConfigContext& context) {
  return context.sync.value_or(config.sync_replicas());
}

// Checks the values that depend on the number of clones and workers.
void CheckJob(const config::TrainConfig& train, const ConfigContext& context,
              FieldChecker* checker) {
  const bool sync = IsSync(train, context);
  const int64_t replicas = context.num_clones * context.num_workers;
  // In asynchronous mode each clone computes whole batches.
  if (sync && train.batch_size() > 0 && train.batch_size() < replicas) {
    checker->Add("train_config.batch_size",
                 absl::StrCat("at least one image per clone (", replicas, ")"),
                 absl::StrCat(train.batch_size()),
                 "the batch of a synchronous step is split over all clones: raise it or lower "
                 "--num_clones");
  }
  if (sync && replicas > 0 && train.min_contributors() > replicas) {
    checker->Add("train_config.min_contributors",
                 absl::StrCat("at most the number of clones (", replicas, ")"),
                 absl::StrCat(train.min_contributors()));
  }
}

void CheckTrainConfig(const config::TrainConfig& train, const ConfigContext& context,
                      FieldChecker* checker) {
  checker->AtLeast("train_config.batch_size", train.batch_size(), 1);
  checker->AtLeast("train_config.max_to_keep", train.max_to_keep(), 1);
  checker->Positive("train_config.keep_checkpoint_every_n_hours",
                    train.keep_checkpoint_every_n_hours());
  checker->NotNegative("train_config.save_checkpoints_secs", train.save_checkpoints_secs());
  checker->NotNegative("train_config.bias_grad_multiplier", train.bias_grad_multiplier());
  checker->NotNegative("train_config.step_deadline_secs", train.step_deadline_secs());
  CheckPatterns(train.freeze_variables(), "train_config.freeze_variables", checker);
  CheckPatterns(train.update_trainable_variables(), "train_config.update_trainable_variables",
                checker);
  CheckAugmentation(train, checker);
  CheckOptimizer(train, checker);
  const std::string& type = train.fine_tune_checkpoint_type();
  if (!type.empty() && type != "detection" && type != "classification" && type != "full") {
    checker->Add("train_config.fine_tune_checkpoint_type",
                 "\"detection\", \"classification\" or \"full\"", absl::StrCat("\"", type, "\""));
  }
  if (train.step_deadline_secs() > 0 && train.min_contributors() == 0) {
    checker->Add("train_config.min_contributors", "at least 1, because step_deadline_secs is set",
                 "0",
                 "say how many clones suffice after the deadline, or remove step_deadline_secs to "
                 "wait for all");
  }
  if (train.min_contributors() > 0 && !(train.step_deadline_secs() > 0)) {
    checker->Add("train_config.step_deadline_secs", "above 0, because min_contributors is set",
                 absl::StrCat(train.step_deadline_secs()),
                 "say how long a step waits for all clones, or remove min_contributors");
  }
  CheckJob(train, context, checker);
}

void WarnIfEndless(const config::TrainEvalPipelineConfig& config,
                   std::vector<std::string>* warnings) {
  if (config.train_config().num_steps() > 0 || config.train_input_reader().num_epochs() > 0) return;
  warnings->push_back(
      "train_config.num_steps and train_input_reader.num_epochs are 0: training goes on until it "
      "is stopped");
}

void CheckInputs(const config::TrainEvalPipelineConfig& config, const ConfigContext& context,
                 FieldChecker* checker, std::vector<std::string>* warnings) {
  CheckReader(config.train_input_reader(), "train_input_reader", config.model(),
              {context.check_train_input, context.data_dir}, checker);
  if (config.eval_input_reader_size() != 1) {
    checker->Add("eval_input_reader", "exactly one", absl::StrCat(config.eval_input_reader_size()),
                 config.eval_input_reader().empty() ? "add it" : "keep one");
  }
  for (int i = 0; i < config.eval_input_reader_size(); ++i) {
    const std::string field = config.eval_input_reader_size() == 1
                                  ? std::string("eval_input_reader")
                                  : absl::StrCat("eval_input_reader[", i, "]");
    CheckReader(config.eval_input_reader(i), field, config.model(),
                {context.check_eval_input, context.data_dir}, checker);
    if (config.eval_input_reader(i).num_epochs() > 1) {
      checker->Add(field + ".num_epochs", "0 or 1",
                   absl::StrCat(config.eval_input_reader(i).num_epochs()),
                   "an evaluation looks at each example once");
    }
    if (config.eval_input_reader(i).has_shuffle() && config.eval_input_reader(i).shuffle()) {
      warnings->push_back(field +
                          ".shuffle has no effect: an evaluation takes the examples in their "
                          "order, each once");
    }
  }
}

void CheckMetrics(const config::TrainEvalPipelineConfig& config, FieldChecker* checker) {
  for (const std::string& name : config.eval_config().metrics_set()) {
    if (!config.model().has_ssd()) {
      checker->Add("eval_config.metrics_set", "none with a classifier",
                   absl::StrCat("\"", name, "\""),
                   "a classifier reports accuracy and loss: remove it");
    } else if (name != "pascal_voc_detection_metrics" && name != "coco_detection_metrics" &&
               name != "oid_V2_detection_metrics" && name != "open_images_V2_detection_metrics") {
      checker->Add("eval_config.metrics_set",
                   "\"pascal_voc_detection_metrics\", \"coco_detection_metrics\" or "
                   "\"oid_V2_detection_metrics\"",
                   absl::StrCat("\"", name, "\""));
    }
  }
}

void CheckEvalConfig(const config::TrainEvalPipelineConfig& config, FieldChecker* checker) {
  CheckMetrics(config, checker);
  checker->AtLeast("eval_config.num_examples", config.eval_config().num_examples(), 1);
  checker->AtLeast("eval_config.batch_size", config.eval_config().batch_size(), 1);
  checker->AtLeast("eval_config.max_num_boxes_to_visualize",
                   config.eval_config().max_num_boxes_to_visualize(), 0);
  if (config.eval_config().use_moving_averages() &&
      !config.train_config().optimizer().use_moving_average()) {
    checker->Add(
        "eval_config.use_moving_averages",
        "false, because train_config.optimizer.use_moving_average is false", "true",
        "there are no moving averages to evaluate: switch them on in training, or off here");
  }
}

// Validates `config`, logs the warnings and returns the problems as a status.
absl::Status Check(const config::TrainEvalPipelineConfig& config, const ConfigContext& context,
                   absl::string_view name) {
  const ConfigReport report = ValidatePipelineConfig(config, context);
  if (!context.log_warnings) return report.ToStatus(name);
  const int64_t count = static_cast<int64_t>(report.warnings.size());
  for (int64_t i = 0; i < std::min<int64_t>(count, kMaxListedProblems); ++i) {
    LOG(WARNING) << name << ": " << report.warnings[i];
  }
  LOG_IF(WARNING, count > kMaxListedProblems)
      << name << ": warnings that are not shown: " << count - kMaxListedProblems;
  return report.ToStatus(name);
}

}  // namespace

absl::Status ConfigReport::ToStatus(absl::string_view name) const {
  return ProblemsToStatus(name, problems);
}

ConfigReport ValidatePipelineConfig(const config::TrainEvalPipelineConfig& config,
                                    const ConfigContext& context) {
  ConfigReport report;
  FieldChecker checker;
  if (config.model().has_external() && !context.external_models) {
    RefuseExternal(config.model().external(), &checker);
    report.problems = checker.problems();
    return report;
  }
  CheckSchemaMarks(config, &checker, &report.warnings);
  if (config.model().has_external()) {
    CheckExternal(config, &checker);
  } else if (config.model().has_classifier()) {
    CheckClassifier(config.model().classifier(), &checker);
    WarnAboutPadding(config.model().classifier().image_resizer(), "model.classifier.image_resizer",
                     &report.warnings);
  } else if (config.model().has_ssd()) {
    CheckSsd(config.model().ssd(), &checker, &report.warnings);
    CheckAugmentationOfBoxes(config.train_config(), &checker);
    WarnAboutPadding(config.model().ssd().image_resizer(), "model.ssd.image_resizer",
                     &report.warnings);
  } else if (config.model().model_case() == config::DetectionModel::MODEL_NOT_SET) {
    checker.Missing("model", "ssd { ... }, classifier { ... } or external { ... }");
  }
  CheckTrainConfig(config.train_config(), context, &checker);
  WarnAboutEffects(config, IsSync(config.train_config(), context), &report.warnings);
  WarnIfEndless(config, &report.warnings);
  if (!config.model().has_external()) {
    CheckInputs(config, context, &checker, &report.warnings);
    CheckEvalConfig(config, &checker);
  }
  CheckFinite(config, &checker);
  report.problems = checker.problems();
  return report;
}

absl::StatusOr<config::TrainEvalPipelineConfig> LoadValidConfig(const std::string& path,
                                                                const ConfigContext& context) {
  PP_ASSIGN_OR_RETURN(config::TrainEvalPipelineConfig config, LoadPipelineConfig(path));
  PP_RETURN_IF_ERROR(Check(config, context, path));
  return config;
}

absl::StatusOr<config::TrainEvalPipelineConfig> LoadConfigOfTrainDir(const std::string& train_dir) {
  absl::StatusOr<config::TrainEvalPipelineConfig> config =
      LoadValidConfig(JoinPath(train_dir, kTrainDirConfigName), {});
  if (!absl::IsNotFound(config.status())) return config;
  return absl::NotFoundError(
      absl::StrCat(train_dir, ": no ", kTrainDirConfigName,
                   " there; expected the --train_dir of a ps_server that has started"));
}

absl::StatusOr<config::TrainEvalPipelineConfig> ParseValidConfig(const std::string& text,
                                                                 const ConfigContext& context,
                                                                 absl::string_view name) {
  PP_ASSIGN_OR_RETURN(config::TrainEvalPipelineConfig config, ParsePipelineConfig(text, name));
  PP_RETURN_IF_ERROR(Check(config, context, name));
  return config;
}

}  // namespace pushpull
