// Tested by tests/ps_server/runtime/checkpoint_recovery_test.cc.
// Tested by tests/ps_server/runtime/shard_store_test.cc.
#include "ps_server/runtime/job_spec.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/model/initializers.h"
#include "common/model/model_layout.h"
#include "ps_server/runtime/job_fingerprint.h"
#include "ps_server/warm_start/restore.h"
#include "ps_server/warm_start/tensor_source.h"

namespace pushpull {
namespace {

constexpr char kReservedName[] = "__metadata__";  // of safetensors files

JobSpec JobOf(const config::TrainEvalPipelineConfig& given, bool sync, int tasks,
              VariableLayout layout) {
  const config::TrainEvalPipelineConfig config = ConfigInMode(given, sync);
  std::string text;
  google::protobuf::TextFormat::PrintToString(config, &text);
  const config::TrainConfig& train = config.train_config();
  const Sharding sharding(layout.total_elements(), tasks);
  return JobSpec{.config = config,
                 .config_text = std::move(text),
                 .fingerprint = JobFingerprint(config, sync, tasks),
                 .layout = std::move(layout),
                 .sharding = sharding,
                 .optimizer = OptimizerSpec(train),
                 .learning_rate = OptimizerSpec::OfLocalSteps(train).learning_rate,
                 .sync = sync,
                 .seed = train.seed(),
                 .limits = LimitsOf(config),
                 .initial_values = {},
                 .declared = {}};
}

}  // namespace

absl::Status CheckVariableNames(const VariableLayout& layout, const OptimizerSpec& optimizer) {
  std::vector<std::string> suffixes = {std::string(kEmaSuffix)};
  for (int slot = 0; slot < optimizer.num_slots(); ++slot) {
    suffixes.emplace_back(optimizer.slot_name(slot));
  }
  for (const VariableSpec& variable : layout.variables()) {
    for (const std::string& suffix : suffixes) {
      const std::string name = absl::StrCat(variable.name, "/", suffix);
      if (!layout.Find(name).has_value()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("variable ", name, " has the name under which checkpoints keep the ", suffix,
                       " of ", variable.name, "; rename it"));
    }
  }
  if (!layout.Find(kReservedName).has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a variable is named ", kReservedName, ", which checkpoints use; rename it"));
}

config::TrainEvalPipelineConfig ConfigInMode(config::TrainEvalPipelineConfig config, bool sync) {
  config::TrainConfig* const train = config.mutable_train_config();
  if (train->sync_replicas() != sync) train->set_sync_replicas(sync);
  return config;
}

JobSpec JobSpec::Create(const config::TrainEvalPipelineConfig& config, bool sync, int tasks) {
  return JobOf(config, sync, tasks, BuildVariableLayout(config));
}

absl::StatusOr<JobSpec> JobSpec::CreateExternal(const config::TrainEvalPipelineConfig& config,
                                                bool sync, int tasks,
                                                const VariableLayout& declared) {
  JobSpec job = JobOf(config, sync, tasks, BuildExternalLayout(config.train_config(), declared));
  PP_RETURN_IF_ERROR(CheckVariableNames(declared, job.optimizer));
  job.declared = declared;
  return job;
}

float JobSpec::LearningRateAt(uint64_t version) const {
  return learning_rate.At(version * config.train_config().local_steps());
}

absl::Status JobSpec::LoadWarmStart(FileSystem* files, const std::string& train_dir) {
  if (config.train_config().fine_tune_checkpoint().empty()) return absl::OkStatus();
  const absl::StatusOr<std::vector<uint64_t>> steps = ListCheckpoints(*files, train_dir);
  if (steps.ok() && !steps->empty()) {
    LOG(INFO) << train_dir << " has checkpoints: train_config.fine_tune_checkpoint is not read";
    return absl::OkStatus();
  }
  PP_ASSIGN_OR_RETURN(initial_values, ReadWarmStart(files));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> JobSpec::ReadWarmStart(FileSystem* files) const {
  const std::string& path = config.train_config().fine_tune_checkpoint();
  if (path.empty()) return std::vector<float>();
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<TensorSource> source, OpenTensorSource(*files, path));
  std::vector<float> values(layout.total_elements());
  InitializeVariables(layout, seed, absl::MakeSpan(values));
  PP_ASSIGN_OR_RETURN(const RestoreReport report,
                      RestoreForWarmStart(layout, config, *source, absl::MakeSpan(values)));
  LOG(INFO) << "warm start " << report.ToString();
  return values;
}

CoordinatorOptions JobSpec::MakeCoordinatorOptions() const {
  const config::TrainConfig& train = config.train_config();
  CoordinatorOptions options;
  options.tasks = sharding.tasks();
  options.sync = sync;
  options.limits = limits;
  options.fingerprint = fingerprint;
  options.layout_signature = layout.signature();
  options.variables = VariableEntries(layout);
  if (declared.has_value()) options.declared = VariableEntries(*declared);
  options.step_deadline = absl::Seconds(train.step_deadline_secs());
  options.min_contributors = train.min_contributors();
  options.max_staleness = train.max_staleness();
  options.non_finite_policy = train.non_finite_policy() == config::TrainConfig::SKIP
                                  ? NonFinitePolicy::kSkip
                                  : NonFinitePolicy::kStop;
  options.measure_norms = optimizer.measures_norms();
  options.shares_by_speed = train.replica_shares() == config::TrainConfig::BY_SPEED;
  options.save_checkpoints_every = absl::Seconds(train.save_checkpoints_secs());
  options.save_checkpoints_steps = train.save_checkpoints_steps();
  return options;
}

}  // namespace pushpull
