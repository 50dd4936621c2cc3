// Tested by tests/ps_server/runtime/checkpoint_recovery_test.cc.
#include "ps_server/runtime/job_spec.h"

#include <memory>
#include <utility>

#include "glog/logging.h"
#include "google/protobuf/text_format.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/model/initializers.h"
#include "common/model/model_layout.h"
#include "ps_server/warm_start/restore.h"
#include "ps_server/warm_start/tensor_source.h"

namespace pushpull {

JobSpec JobSpec::Create(const config::TrainEvalPipelineConfig& config, bool sync, int tasks) {
  VariableLayout layout = BuildVariableLayout(config);
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  const Sharding sharding(layout.total_elements(), tasks);
  return JobSpec{.config = config,
                 .config_text = std::move(text),
                 .layout = std::move(layout),
                 .sharding = sharding,
                 .optimizer = OptimizerSpec(config.train_config()),
                 .sync = sync,
                 .seed = config.train_config().seed(),
                 .limits = {.num_steps = config.train_config().num_steps(),
                            .num_epochs = config.train_input_reader().num_epochs(),
                            .batch_size = config.train_config().batch_size()},
                 .initial_values = {}};
}

absl::Status JobSpec::LoadFineTuneCheckpoint(FileSystem* files, const std::string& train_dir) {
  const std::string& path = config.train_config().fine_tune_checkpoint();
  if (path.empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<uint64_t>> steps = ListCheckpoints(*files, train_dir);
  if (steps.ok() && !steps->empty()) {
    LOG(INFO) << train_dir << " has checkpoints: train_config.fine_tune_checkpoint is not read";
    return absl::OkStatus();
  }
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source, OpenTensorSource(*files, path));
  std::vector<float> values(layout.total_elements());
  InitializeVariables(layout, seed, absl::MakeSpan(values));
  PP_ASSIGN_OR_RETURN(const RestoreReport report,
                      RestoreForFineTuning(layout, config, *source, absl::MakeSpan(values)));
  LOG(INFO) << "fine-tuning " << report.ToString();
  initial_values = std::move(values);
  return absl::OkStatus();
}

CoordinatorOptions JobSpec::MakeCoordinatorOptions() const {
  const config::TrainConfig& train = config.train_config();
  CoordinatorOptions options;
  options.tasks = sharding.tasks();
  options.sync = sync;
  options.limits = limits;
  options.layout_signature = layout.signature();
  options.variables = VariableEntries(layout);
  options.step_deadline = absl::Seconds(train.step_deadline_secs());
  options.min_contributors = train.min_contributors();
  options.max_staleness = train.max_staleness();
  options.non_finite_policy = train.non_finite_policy() == config::TrainConfig::SKIP
                                  ? NonFinitePolicy::kSkip
                                  : NonFinitePolicy::kStop;
  options.measure_norms = optimizer.measures_norms();
  options.save_checkpoints_every = absl::Seconds(train.save_checkpoints_secs());
  options.save_checkpoints_steps = train.save_checkpoints_steps();
  return options;
}

}  // namespace pushpull
