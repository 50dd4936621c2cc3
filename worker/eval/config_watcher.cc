#include "worker/eval/config_watcher.h"

#include <utility>

#include "absl/status/statusor.h"

#include "common/config/config_difference.h"
#include "common/config/pipeline_config.h"

namespace pushpull {
namespace {

// Returns the parts of the config that an evaluation follows.
config::TrainEvalPipelineConfig PartsOfEvaluation(const config::TrainEvalPipelineConfig& config) {
  config::TrainEvalPipelineConfig parts;
  if (config.has_model()) *parts.mutable_model() = config.model();
  if (config.has_eval_config()) *parts.mutable_eval_config() = config.eval_config();
  *parts.mutable_eval_input_reader() = config.eval_input_reader();
  return parts;
}

}  // namespace

ConfigWatcher::ConfigWatcher(FileSystem* files, std::string path,
                             const config::TrainEvalPipelineConfig& loaded)
    : files_(files), path_(std::move(path)), loaded_(PartsOfEvaluation(loaded)) {}

std::string ConfigWatcher::DescribeChange() {
  absl::StatusOr<std::string> text = ReadWholeFile(*files_, path_);
  if (!text.ok() || *text == same_text_) return "";
  const absl::StatusOr<config::TrainEvalPipelineConfig> now = ParsePipelineConfig(*text, path_);
  if (!now.ok()) return "";
  std::string change =
      DescribeConfigDifference(loaded_, PartsOfEvaluation(*now), UnsetFields::kDiffer);
  if (change.empty()) same_text_ = *std::move(text);
  return change;
}

}  // namespace pushpull
