#include "common/config/validate_config.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/config/field_checker.h"
#include "common/config/hyperparams_checks.h"
#include "common/config/optimizer_checks.h"
#include "common/config/resizer_checks.h"
#include "common/config/schema_marks.h"
#include "common/config/ssd_checks.h"

namespace pushpull {
namespace {

constexpr int kMinInputSize = 32;
constexpr int kMaxInputSize = 4096;
constexpr int kMaxPatternBytes = 1000;

void CheckClassifier(const config::Classifier& classifier, FieldChecker* checker) {
  const std::string field = "model.classifier";
  checker->AtLeast(field + ".num_classes", classifier.num_classes(), 2);
  CheckImageResizer(classifier.image_resizer(), field + ".image_resizer",
                    {kMinInputSize, kMaxInputSize}, checker);
  const auto& extractor = classifier.feature_extractor();
  if (extractor.type() != "mobilenet_v2") {
    checker->Add(field + ".feature_extractor.type", "\"mobilenet_v2\"",
                 absl::StrCat("\"", extractor.type(), "\""));
  }
  if (!(extractor.depth_multiplier() > 0 && extractor.depth_multiplier() <= 4)) {
    checker->Add(field + ".feature_extractor.depth_multiplier", "a number above 0 and at most 4",
                 absl::StrCat(extractor.depth_multiplier()));
  }
  checker->AtLeast(field + ".feature_extractor.min_depth", extractor.min_depth(), 1);
  if (extractor.has_conv_hyperparams()) {
    CheckHyperparams(extractor.conv_hyperparams(), field + ".feature_extractor.conv_hyperparams",
                     BatchNormUse::kRequired, checker);
  }
  CheckInitializer(classifier.logits_initializer(), field + ".logits_initializer", checker);
  checker->AtLeast(field + ".hidden_units", classifier.hidden_units(), 0);
  const float keep = classifier.dropout_keep_probability();
  if (!(keep > 0 && keep <= 1)) {
    checker->Add(field + ".dropout_keep_probability", "a number above 0 and at most 1",
                 absl::StrCat(keep));
  }
  checker->Fraction(field + ".label_smoothing", classifier.label_smoothing());
  if (classifier.num_channels() != 1 && classifier.num_channels() != 3) {
    checker->Add(field + ".num_channels", "1 (grey) or 3 (RGB)",
                 absl::StrCat(classifier.num_channels()));
  }
}

void CheckPatterns(const google::protobuf::RepeatedPtrField<std::string>& patterns,
                   absl::string_view field, FieldChecker* checker) {
  for (int i = 0; i < patterns.size(); ++i) {
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

// Checks the values that depend on the number of clones, workers and tasks.
void CheckJob(const config::TrainConfig& train, const ConfigContext& context,
              FieldChecker* checker) {
  const bool sync = IsSync(train, context);
  const int64_t replicas = context.num_clones * context.num_workers;
  const int64_t sharers = sync ? replicas : context.num_clones;
  if (context.num_clones > 0 && train.batch_size() > 0 && train.batch_size() < sharers) {
    checker->Add(
        "train_config.batch_size", absl::StrCat("at least one image per clone (", sharers, ")"),
        absl::StrCat(train.batch_size()),
        sync ? "the batch of a synchronous step is split over all clones: raise it or lower "
               "--num_clones"
             : "the batch of a worker is split over its clones: raise it or lower --num_clones");
  }
  if (sync && replicas > 0 && train.min_contributors() > replicas) {
    checker->Add("train_config.min_contributors",
                 absl::StrCat("at most the number of clones (", replicas, ")"),
                 absl::StrCat(train.min_contributors()));
  }
  const bool clips =
      train.gradient_clipping_by_norm() > 0 || train.gradient_clipping_by_global_norm() > 0;
  if (!sync && clips && context.tasks > 1) {
    checker->Add(train.gradient_clipping_by_norm() > 0
                     ? "train_config.gradient_clipping_by_norm"
                     : "train_config.gradient_clipping_by_global_norm",
                 "--tasks=1 when gradients are clipped in asynchronous mode",
                 absl::StrCat("--tasks=", context.tasks),
                 "a shard cannot know the norm of what others hold when each applies on arrival: "
                 "use one task, "
                 "synchronous mode or no clipping");
  }
}

void CheckTrainConfig(const config::TrainConfig& train, const ConfigContext& context,
                      FieldChecker* checker, std::vector<std::string>* warnings) {
  checker->AtLeast("train_config.batch_size", train.batch_size(), 1);
  checker->AtLeast("train_config.max_to_keep", train.max_to_keep(), 1);
  checker->AtLeast("train_config.keep_checkpoint_every_n_hours",
                   train.keep_checkpoint_every_n_hours(), 1);
  checker->NotNegative("train_config.save_checkpoints_secs", train.save_checkpoints_secs());
  checker->NotNegative("train_config.bias_grad_multiplier", train.bias_grad_multiplier());
  checker->NotNegative("train_config.step_deadline_secs", train.step_deadline_secs());
  CheckPatterns(train.freeze_variables(), "train_config.freeze_variables", checker);
  CheckPatterns(train.update_trainable_variables(), "train_config.update_trainable_variables",
                checker);
  CheckOptimizer(train, checker);
  const std::string& type = train.fine_tune_checkpoint_type();
  if (!type.empty() && type != "detection" && type != "classification") {
    checker->Add("train_config.fine_tune_checkpoint_type", "\"detection\" or \"classification\"",
                 absl::StrCat("\"", type, "\""));
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

  const bool sync = IsSync(train, context);
  if (sync && train.max_staleness() > 0) {
    warnings->push_back("train_config.max_staleness has no effect in synchronous mode");
  }
  if (!sync && train.min_contributors() > 0) {
    warnings->push_back("train_config.min_contributors has no effect in asynchronous mode");
  }
  if (train.num_steps() == 0) {
    warnings->push_back("train_config.num_steps is 0: training goes on until it is stopped");
  }
}

// Checks that `path` is set and, if `look` is true, that it exists. `folder` says whether it must
// be a folder. A path that does not exist is a missing input, which has its own exit code (66).
// CheckSchemaMarks reports remote paths and placeholders.
void CheckPath(const std::string& field, const std::string& path, bool folder,
               const ConfigContext& context, bool look, FieldChecker* checker) {
  if (path.empty())
    return checker->Missing(field, folder ? "the path of a folder" : "the path of a file");
  if (absl::StrContains(path, "://") || absl::StrContains(path, "PATH_TO_BE_CONFIGURED") || !look)
    return;
  const bool relative = path[0] != '/';
  const std::string full =
      relative && !context.data_dir.empty() ? absl::StrCat(context.data_dir, "/", path) : path;
  struct stat info;
  if (::stat(full.c_str(), &info) != 0) {
    checker->AddProblem({field, folder ? "an existing folder" : "an existing file",
                         absl::StrCat("\"", full, "\", which does not exist"),
                         relative
                             ? "correct the path, or say with --data_dir where relative paths begin"
                             : "correct the path",
                         true});
  } else if (S_ISDIR(info.st_mode) != folder) {
    checker->Add(field, folder ? "a folder" : "a file",
                 absl::StrCat("\"", full, "\", which is a ", folder ? "file" : "folder"));
  }
}

void CheckSynthetic(const config::SyntheticInputReader& reader, const std::string& field, bool look,
                    const config::TrainEvalPipelineConfig& config, const ConfigContext& context,
                    FieldChecker* checker) {
  checker->AtLeast(field + ".num_examples", reader.num_examples(), 1);
  checker->Between(field + ".height", reader.height(), 16, kMaxInputSize);
  checker->Between(field + ".width", reader.width(), 16, kMaxInputSize);
  checker->AtLeast(field + ".num_classes", reader.num_classes(), 1);
  if (reader.num_channels() != 1 && reader.num_channels() != 3) {
    checker->Add(field + ".num_channels", "1 (grey) or 3 (RGB)",
                 absl::StrCat(reader.num_channels()));
  }
  if (reader.has_digits()) {
    CheckPath(field + ".digits.images_path", reader.digits().images_path(), false, context, look,
              checker);
    CheckPath(field + ".digits.labels_path", reader.digits().labels_path(), false, context, look,
              checker);
  }
  const bool detector = config.model().has_ssd();
  const int64_t model_classes =
      detector ? config.model().ssd().num_classes() : config.model().classifier().num_classes();
  if (model_classes >= (detector ? 1 : 2) && int64_t{reader.num_classes()} > model_classes) {
    checker->Add(field + ".num_classes",
                 absl::StrCat("at most model.", detector ? "ssd" : "classifier", ".num_classes (",
                              model_classes, ")"),
                 absl::StrCat(reader.num_classes()), "make the two agree");
  }
}

void CheckReader(const config::InputReader& reader, const std::string& field, bool look,
                 const config::TrainEvalPipelineConfig& config, const ConfigContext& context,
                 FieldChecker* checker) {
  if (config.model().has_ssd() &&
      (reader.has_idx_input_reader() || reader.has_image_folder_input_reader())) {
    checker->Add(field, "a reader that gives boxes",
                 reader.has_idx_input_reader() ? "idx_input_reader" : "image_folder_input_reader",
                 "a detector learns from boxes, which these data do not have");
    return;
  }
  switch (reader.input_reader_case()) {
    case config::InputReader::kIdxInputReader:
      CheckPath(field + ".idx_input_reader.images_path", reader.idx_input_reader().images_path(),
                false, context, look, checker);
      CheckPath(field + ".idx_input_reader.labels_path", reader.idx_input_reader().labels_path(),
                false, context, look, checker);
      break;
    case config::InputReader::kImageFolderInputReader:
      CheckPath(field + ".image_folder_input_reader.path",
                reader.image_folder_input_reader().path(), true, context, look, checker);
      break;
    case config::InputReader::kSyntheticInputReader:
      CheckSynthetic(reader.synthetic_input_reader(), field + ".synthetic_input_reader", look,
                     config, context, checker);
      break;
    case config::InputReader::INPUT_READER_NOT_SET:
      checker->Missing(field,
                       "tf_record_input_reader, voc_input_reader, idx_input_reader, "
                       "image_folder_input_reader or synthetic_input_reader");
      break;
    default:  // TFRecords and VOC are checked when they are opened, external readers by their mark
      break;
  }
}

void CheckInputs(const config::TrainEvalPipelineConfig& config, const ConfigContext& context,
                 FieldChecker* checker) {
  CheckReader(config.train_input_reader(), "train_input_reader", context.check_train_input, config,
              context, checker);
  if (config.train_input_reader().num_epochs() != 0) {
    checker->Add("train_input_reader.num_epochs", "0",
                 absl::StrCat(config.train_input_reader().num_epochs()),
                 "say with train_config.num_steps how long to train");
  }
  if (config.eval_input_reader_size() != 1) {
    checker->Add("eval_input_reader", "exactly one", absl::StrCat(config.eval_input_reader_size()),
                 config.eval_input_reader().empty() ? "add it" : "keep one");
  }
  for (int i = 0; i < config.eval_input_reader_size(); ++i) {
    const std::string field = config.eval_input_reader_size() == 1
                                  ? std::string("eval_input_reader")
                                  : absl::StrCat("eval_input_reader[", i, "]");
    CheckReader(config.eval_input_reader(i), field, context.check_eval_input, config, context,
                checker);
    if (config.eval_input_reader(i).num_epochs() > 1) {
      checker->Add(field + ".num_epochs", "0 or 1",
                   absl::StrCat(config.eval_input_reader(i).num_epochs()),
                   "an evaluation looks at each example once");
    }
  }
}

void CheckMetrics(const config::TrainEvalPipelineConfig& config, FieldChecker* checker) {
  for (const std::string& name : config.eval_config().metrics_set()) {
    if (!config.model().has_ssd()) {
      checker->Add("eval_config.metrics_set", "none with a classifier",
                   absl::StrCat("\"", name, "\""),
                   "a classifier reports accuracy and loss: remove it");
    } else if (name != "pascal_voc_detection_metrics" && name != "coco_detection_metrics") {
      checker->Add("eval_config.metrics_set",
                   "\"pascal_voc_detection_metrics\" or \"coco_detection_metrics\"",
                   absl::StrCat("\"", name, "\""));
    }
  }
}

void CheckEvalConfig(const config::TrainEvalPipelineConfig& config, FieldChecker* checker) {
  CheckMetrics(config, checker);
  checker->AtLeast("eval_config.num_examples", config.eval_config().num_examples(), 1);
  checker->AtLeast("eval_config.batch_size", config.eval_config().batch_size(), 1);
  if (config.eval_config().use_moving_averages() &&
      !config.train_config().optimizer().use_moving_average()) {
    checker->Add(
        "eval_config.use_moving_averages",
        "false, because train_config.optimizer.use_moving_average is false", "true",
        "there are no moving averages to evaluate: switch them on in training, or off here");
  }
}

}  // namespace

absl::Status ConfigReport::ToStatus(absl::string_view name) const {
  return ProblemsToStatus(name, problems);
}

ConfigReport ValidatePipelineConfig(const config::TrainEvalPipelineConfig& config,
                                    const ConfigContext& context) {
  ConfigReport report;
  FieldChecker checker;
  CheckSchemaMarks(config, &checker, &report.warnings);
  if (config.model().has_classifier()) {
    CheckClassifier(config.model().classifier(), &checker);
  } else if (config.model().has_ssd()) {
    CheckSsd(config.model().ssd(), &checker);
  } else if (config.model().model_case() == config::DetectionModel::MODEL_NOT_SET) {
    checker.Missing("model", "ssd { ... } or classifier { ... }");
  }
  CheckTrainConfig(config.train_config(), context, &checker, &report.warnings);
  CheckInputs(config, context, &checker);
  CheckEvalConfig(config, &checker);
  report.problems = checker.problems();
  return report;
}

absl::Status CheckPipelineConfig(const config::TrainEvalPipelineConfig& config,
                                 const ConfigContext& context, absl::string_view name) {
  const ConfigReport report = ValidatePipelineConfig(config, context);
  const int64_t count = static_cast<int64_t>(report.warnings.size());
  for (int64_t i = 0; i < std::min<int64_t>(count, kMaxListedProblems); ++i) {
    LOG(WARNING) << name << ": " << report.warnings[i];
  }
  LOG_IF(WARNING, count > kMaxListedProblems)
      << name << ": warnings that are not shown: " << count - kMaxListedProblems;
  return report.ToStatus(name);
}

}  // namespace pushpull
