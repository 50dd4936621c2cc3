#include "ps_server/warm_start/corrected_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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

// Returns the network of the config; nullopt if this corrects no statistics. This release may
// refuse a config that another one wrote, so it is parsed only where it has to be.
absl::StatusOr<std::optional<NetworkSpec>> CorrectedNetwork(const TrainedStatistics& trained) {
  const std::string& text = trained.pipeline_config;
  if (!absl::StrContains(text, kField)) return std::nullopt;
  ConfigContext context;
  context.log_warnings = false;
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config,
                      ParseValidConfig(text, context, trained.place));
  return BuildNetworkSpec(config.model());
}

// Returns what makes the correction wrong, and what to do; "" if it holds. `there`: the batch norm
// by the checkpoint's config; null: no statistics are corrected there.
std::string WrongCorrection(const op::BatchNorm* there, const op::BatchNorm& here,
                            uint64_t updates) {
  const auto share = [updates](float decay) {
    return std::pow(static_cast<double>(decay), static_cast<double>(updates));
  };
  const double left_here = share(here.decay);
  if (there == nullptr || !there->bias_corrected) {
    if (left_here < kNegligibleShare) return "";
    return absl::StrCat("batch_norm.", kField,
                        " was false there and is true now. It assumes that moving statistics began "
                        "at mean 0 and variance 1, which is not known of these: a warm start "
                        "changes it. Remove the field");
  }
  const double left_there = share(there->decay);
  if (std::max(left_here, left_there) < kNegligibleShare) return "";
  if (there->frozen) {
    return absl::StrCat(
        "it was frozen there (by batch_norm.train: false or freeze_batchnorm: true) and is not "
        "now, so that not all updates changed its statistics. Keep it frozen, or remove "
        "batch_norm.",
        kField);
  }
  if (there->decay == here.decay) return "";
  return absl::StrCat(
      "batch_norm.decay was ", there->decay, " there and is ", here.decay, " now. Set it back",
      left_there < kNegligibleShare ? absl::StrCat(", or remove batch_norm.", kField,
                                                   ", which these statistics no longer need")
                                    : "");
}

// Returns what CorrectionsOf returns for a checkpoint.
absl::StatusOr<std::map<std::string, StatisticCorrection>> Corrections(
    const TrainedStatistics& trained) {
  std::map<std::string, StatisticCorrection> corrections;
  PP_ASSIGN_OR_RETURN(const std::optional<NetworkSpec> network, CorrectedNetwork(trained));
  if (!network.has_value()) return corrections;
  for (const StatisticCorrection& correction :
       StatisticCorrections(*network, static_cast<int64_t>(trained.updates))) {
    corrections.emplace(network->variables[correction.variable].name, correction);
  }
  return corrections;
}

}  // namespace

TrainedStatistics StatisticsOf(const Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest();
  return {manifest.pipeline_config, manifest.updates, checkpoint.path()};
}

absl::StatusOr<std::map<std::string, StatisticCorrection>> CorrectionsOf(
    const Checkpoint& checkpoint) {
  return Corrections(StatisticsOf(checkpoint));
}

absl::Status CheckFrozenStatistics(const TrainedStatistics& trained,
                                   const config::DetectionModel& model) {
  const NetworkSpec network = BuildNetworkSpec(model);
  std::vector<op::BatchNorm> frozen;
  ForEachBatchNorm(network, [&frozen](const op::BatchNorm& norm) {
    if (norm.frozen) frozen.push_back(norm);
  });
  if (frozen.empty()) return absl::OkStatus();
  PP_ASSIGN_OR_RETURN(const auto corrections, Corrections(trained));
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
        name, trained.place, trained.updates, 100.0 * found->second.left));
  }
  return absl::OkStatus();
}

absl::Status CheckCorrectionHolds(const TrainedStatistics& trained,
                                  const config::DetectionModel& model) {
  const NetworkSpec network = BuildNetworkSpec(model);
  std::vector<op::BatchNorm> corrected;
  ForEachBatchNorm(network, [&corrected](const op::BatchNorm& norm) {
    if (norm.bias_corrected && !norm.frozen) corrected.push_back(norm);
  });
  if (corrected.empty()) return absl::OkStatus();
  PP_ASSIGN_OR_RETURN(const std::optional<NetworkSpec> old_network, CorrectedNetwork(trained));
  std::map<std::string, op::BatchNorm> old_norms;
  if (old_network.has_value()) {
    ForEachBatchNorm(*old_network, [&](const op::BatchNorm& norm) {
      old_norms.emplace(old_network->variables[norm.moving_mean].name, norm);
    });
  }
  for (const op::BatchNorm& norm : corrected) {
    const std::string& name = network.variables[norm.moving_mean].name;
    const auto found = old_norms.find(name);
    const std::string wrong =
        WrongCorrection(found == old_norms.end() ? nullptr : &found->second, norm, trained.updates);
    if (wrong.empty()) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "the correction of %s would be wrong after the %d updates of %s: %s, or begin a new "
        "train_dir",
        name, trained.updates, trained.place, wrong));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
