#include "ps_server/runtime/job_fingerprint.h"

#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"

#include "common/base/sha256.h"
#include "common/config/config_difference.h"
#include "common/optimizer/optimizer.h"

namespace pushpull {
namespace {

// Removes what only the evaluator reads, and what only the coordinator does.
void RemoveFieldsOfOneReader(config::TrainEvalPipelineConfig* config) {
  config->clear_eval_config();
  config->clear_eval_input_reader();
  config::TrainConfig* const train = config->mutable_train_config();
  // The end of training, which clones learn when they register.
  train->clear_num_steps();
  config->mutable_train_input_reader()->clear_num_epochs();
  // Checkpoints.
  train->clear_save_checkpoints_secs();
  train->clear_save_checkpoints_steps();
  train->clear_max_to_keep();
  train->clear_keep_checkpoint_every_n_hours();
  // Steps.
  train->clear_max_staleness();
  train->clear_min_contributors();
  train->clear_step_deadline_secs();
  train->clear_non_finite_policy();
  train->clear_replica_shares();
}

// Leaves the fields that all ps tasks need alike.
config::TrainEvalPipelineConfig FieldsOfAllTasks(config::TrainEvalPipelineConfig config) {
  RemoveFieldsOfOneReader(&config);
  // Clones take these from task 0.
  config.clear_train_input_reader();
  config::TrainConfig* const train = config.mutable_train_config();
  train->clear_data_augmentation_options();
  // The file may have another path on each machine.
  if (!train->fine_tune_checkpoint().empty()) train->set_fine_tune_checkpoint("(a path)");
  return config;
}

}  // namespace

config::TrainEvalPipelineConfig WithoutServerFields(config::TrainEvalPipelineConfig config) {
  RemoveFieldsOfOneReader(&config);
  config::TrainConfig* const train = config.mutable_train_config();
  // The warm start.
  train->clear_fine_tune_checkpoint();
  train->clear_fine_tune_checkpoint_type();
  train->clear_from_detection_checkpoint();
  train->clear_load_all_detection_checkpoint_vars();
  // The update of the variables. With local steps clones update weights too, by `optimizer`.
  train->clear_outer_optimizer();
  if (!HasLocalSteps(*train)) {
    train->clear_optimizer();
    train->clear_gradient_clipping_by_norm();
    train->clear_gradient_clipping_by_global_norm();
  }
  return config;
}

std::string JobFingerprint(const config::TrainEvalPipelineConfig& config, bool sync, int tasks) {
  config::TrainEvalPipelineConfig compared = WithoutServerFields(config);
  const uint64_t seed = compared.train_config().seed();
  compared.mutable_train_config()->set_sync_replicas(sync);
  std::string text;
  google::protobuf::TextFormat::PrintToString(compared, &text);
  return absl::HexStringToBytes(
      Sha256Hex(absl::StrCat("seed ", seed, ", ", tasks, " tasks\n", text)));
}

std::string DescribeTaskDifference(const config::TrainEvalPipelineConfig& there,
                                   const config::TrainEvalPipelineConfig& here) {
  return DescribeConfigDifference(FieldsOfAllTasks(there), FieldsOfAllTasks(here),
                                  UnsetFields::kAreDefaults);
}

}  // namespace pushpull
