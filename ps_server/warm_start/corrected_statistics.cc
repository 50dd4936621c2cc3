#include "ps_server/warm_start/corrected_statistics.h"

#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "common/config/validate_config.h"
#include "common/model/model_layout.h"
#include "common/model/network_spec.h"

namespace pushpull {
namespace {

constexpr char kField[] = "bias_corrected_moving_statistics";

// Statistics that hold less than this of their initial values count as settled.
constexpr double kNegligibleShare = 0.001;

}  // namespace

absl::StatusOr<std::map<std::string, StatisticCorrection>> CorrectionsOf(
    const Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest();
  std::map<std::string, StatisticCorrection> corrections;
  // This release may refuse a config that another one wrote, so it is parsed only where it has to
  // be.
  if (!absl::StrContains(manifest.pipeline_config, kField)) return corrections;
  ConfigContext context;
  context.log_warnings = false;
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config,
                      ParseValidConfig(manifest.pipeline_config, context, checkpoint.path()));
  const NetworkSpec network = BuildNetworkSpec(config.model());
  for (const StatisticCorrection& correction :
       StatisticCorrections(network, static_cast<int64_t>(manifest.updates))) {
    corrections.emplace(network.variables[correction.variable].name, correction);
  }
  return corrections;
}

absl::Status CheckFrozenStatistics(const Checkpoint& checkpoint,
                                   const config::DetectionModel& model) {
  const NetworkSpec network = BuildNetworkSpec(model);
  std::vector<op::BatchNorm> frozen;
  ForEachBatchNorm(network, [&frozen](const op::BatchNorm& norm) {
    if (norm.frozen) frozen.push_back(norm);
  });
  if (frozen.empty()) return absl::OkStatus();
  PP_ASSIGN_OR_RETURN(const auto corrections, CorrectionsOf(checkpoint));
  for (const op::BatchNorm& norm : frozen) {
    const std::string& name = network.variables[norm.moving_mean].name;
    const auto found = corrections.find(name);
    if (found == corrections.end() || found->second.left < kNegligibleShare) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "the config freezes the batch norm of %s, but %s was trained with "
        "batch_norm.bias_corrected_moving_statistics: after %d updates this statistic still holds "
        "%.1f%% of its initial value, which a frozen batch norm does not remove. Train on without "
        "freezing it, or begin a new train_dir: exporter --output=FILE.safetensors writes "
        "corrected statistics for train_config.fine_tune_checkpoint",
        name, checkpoint.path(), checkpoint.manifest().updates, 100.0 * found->second.left));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
