// JobSpec says what is trained and how. It is derived once from the pipeline config; all ps
// tasks of a process share it read-only.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_JOB_SPEC_H_
#define PUSHPULL_PS_SERVER_RUNTIME_JOB_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "common/config/training_length.h"
#include "common/model/sharding.h"
#include "common/model/variable_layout.h"
#include "common/optimizer/optimizer.h"
#include "protos/pipeline.pb.h"
#include "ps_server/core/coordinator_options.h"

namespace pushpull {

struct JobSpec {
  // `config` is valid, and its model is not external. `sync` replaces its sync_replicas, as
  // ConfigInMode does. tasks: ps tasks of the job.
  static JobSpec Create(const config::TrainEvalPipelineConfig& config, bool sync, int tasks);
  // The same for an external model, whose variables a clone has declared. Returns the errors of
  // CheckVariableNames.
  static absl::StatusOr<JobSpec> CreateExternal(const config::TrainEvalPipelineConfig& config,
                                                bool sync, int tasks,
                                                const VariableLayout& declared);

  // Warm start: sets initial_values to what ReadWarmStart returns. Does nothing if train_dir has
  // checkpoints, since training then continues from those. Blocks on the disk.
  absl::Status LoadWarmStart(FileSystem* files, const std::string& train_dir);
  // Returns the initial values with those that train_config.fine_tune_checkpoint has, as the
  // layout's flat vector, and logs a table of what was restored. Returns an empty vector if the
  // config names no such checkpoint. Also returns the errors of OpenTensorSource and
  // RestoreForWarmStart. Blocks on the disk.
  absl::StatusOr<std::vector<float>> ReadWarmStart(FileSystem* files) const;

  config::TrainEvalPipelineConfig config;
  std::string config_text;  // `config` as protobuf text
  std::string fingerprint;  // JobFingerprint
  VariableLayout layout;
  Sharding sharding;
  OptimizerSpec optimizer;
  LearningRateSchedule learning_rate;  // of train_config.optimizer
  bool sync = true;
  uint64_t seed = 1;
  TrainingLimits limits = {};
  // Initial values of a warm start, as the layout's flat vector. Empty: there is no warm start, or
  // train_dir had checkpoints when the process started.
  std::vector<float> initial_values;

  // External model: the variables as a clone has declared them, before train_config was applied.
  // Checkpoints keep them. nullopt: the model is not external.
  std::optional<VariableLayout> declared;

  // Returns the learning rate of train_config.optimizer for the step after `version`; with local
  // steps, for the first mini-batch of that round.
  float LearningRateAt(uint64_t version) const;

  // The part of the job that the coordinator needs. The caller fills in run_id, num_replicas,
  // lease and from_checkpoint.
  CoordinatorOptions MakeCoordinatorOptions() const;
};

// Returns `config` with sync_replicas: `sync`, so that all who read it later know the mode that
// runs.
config::TrainEvalPipelineConfig ConfigInMode(config::TrainEvalPipelineConfig config, bool sync);

// INVALID_ARGUMENT: a variable has a name that checkpoints use for a slot or the EMA of another
// variable, or for something else.
absl::Status CheckVariableNames(const VariableLayout& layout, const OptimizerSpec& optimizer);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_JOB_SPEC_H_
