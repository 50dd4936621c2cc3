// What is trained and how, worked out once from the pipeline config; server tasks share it
// read-only.
#ifndef PUSHPULL_PS_SERVER_SERVICE_JOB_SPEC_H_
#define PUSHPULL_PS_SERVER_SERVICE_JOB_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/file_system.h"
#include "common/sharding.h"
#include "common/variable_layout.h"
#include "protos/pipeline.pb.h"
#include "ps_server/core/coordinator_options.h"
#include "ps_server/store/optimizer.h"

namespace pushpull {

struct JobSpec {
  // INVALID_ARGUMENT: what the config lacks, naming the field. sync overrides the config's
  // sync_replicas.
  static absl::StatusOr<JobSpec> Create(const config::TrainEvalPipelineConfig& config, bool sync,
                                        int tasks);

  // Reads train_config.fine_tune_checkpoint into initial_values and logs the table of what was
  // restored. Does nothing without one, or when train_dir has a checkpoint: training goes on from
  // that. Errors of OpenTensorSource and RestoreForFineTuning.
  absl::Status LoadFineTuneCheckpoint(FileSystem* files, const std::string& train_dir);

  config::TrainEvalPipelineConfig config;
  std::string config_text;
  VariableLayout layout;
  Sharding sharding;
  OptimizerSpec optimizer;
  bool sync = true;
  uint64_t seed = 1;
  uint64_t num_steps = 0;
  // Of a fine-tuned model, the layout's flat vector; empty: those of InitializeVariables.
  std::vector<float> initial_values;

  // The coordinator's view; run_id and num_slots are filled in by the caller.
  CoordinatorOptions MakeCoordinatorOptions() const;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_JOB_SPEC_H_
