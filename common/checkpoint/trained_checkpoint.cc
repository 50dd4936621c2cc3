#include "common/checkpoint/trained_checkpoint.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/train_dir.h"
#include "common/config/config_difference.h"
#include "common/config/pipeline_config.h"

namespace pushpull {
namespace {

void WarnOfOtherModel(const Checkpoint& checkpoint, const config::TrainEvalPipelineConfig& config) {
  const absl::StatusOr<config::TrainEvalPipelineConfig> trained =
      ParsePipelineConfig(checkpoint.manifest().pipeline_config, checkpoint.path());
  // The text may be that of another version, or a program may have declared the model.
  if (!trained.ok() || !trained->has_model()) return;
  const std::string difference =
      DescribeConfigDifference(trained->model(), config.model(), UnsetFields::kAreDefaults);
  LOG_IF(WARNING, !difference.empty())
      << checkpoint.path() << " was trained with another model than the config describes, whose "
      << "values are used; the first difference: " << difference
      << ". The config of the training is \"pipeline_config\" in the checkpoint's MANIFEST.json";
}

// Adds to an error what the user can do if the newest checkpoint is of another run than `run_id`.
absl::Status NamingOtherRuns(FileSystem& files, const std::string& train_dir,
                             const std::string& run_id, const absl::Status& status) {
  if (!absl::IsFailedPrecondition(status)) return status;
  const absl::StatusOr<CheckpointManifest> newest = ReadNewestManifest(files, train_dir, {});
  if (!newest.ok() || newest->run_id == run_id) return status;
  return Annotated(status, absl::StrCat(status.message(), "\n--step=", newest->step,
                                        " takes the checkpoint of the other run"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Checkpoint>> OpenTrainedCheckpoint(
    FileSystem& files, const std::string& train_dir, int64_t step, const VariableLayout* layout,
    const config::TrainEvalPipelineConfig& config) {
  RecoveryRequest request;
  request.layout = layout;
  if (step < 0) {
    PP_ASSIGN_OR_RETURN(const std::optional<std::string> run_id, ReadRunId(files, train_dir));
    request.run_id = run_id.value_or("");
  }
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint =
      OpenCheckpoint(files, train_dir, step, request);
  if (!request.run_id.empty()) {
    PP_RETURN_IF_ERROR(NamingOtherRuns(files, train_dir, request.run_id, checkpoint.status()));
  }
  PP_RETURN_IF_ERROR(checkpoint.status());
  WarnOfOtherModel(**checkpoint, config);
  return checkpoint;
}

}  // namespace pushpull
