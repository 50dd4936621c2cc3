#include "worker/eval/config_watcher.h"

#include <utility>

#include "absl/status/statusor.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

#include "common/base/sha256.h"
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

std::string EvaluationDigest(const config::TrainEvalPipelineConfig& config) {
  config::TrainEvalPipelineConfig parts = PartsOfEvaluation(config);
  if (parts.has_eval_config()) {
    config::EvalConfig& eval_config = *parts.mutable_eval_config();
    eval_config.clear_num_visualizations();
    eval_config.clear_max_num_boxes_to_visualize();
    eval_config.clear_min_score_threshold();
    eval_config.clear_eval_interval_secs();
    eval_config.clear_max_evals();
    eval_config.clear_export_path();
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    parts.SerializeToCodedStream(&coded);
  }
  return Sha256Hex(bytes);
}

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
