// The evaluator program: evaluates the checkpoints of a training run as they appear, and ends when
// training has ended.
// Tested by tests/worker/eval/evaluator_main_test.cc.
#include <atomic>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/cli/exit_codes.h"
#include "common/cli/flag_checks.h"
#include "common/cli/main_support.h"
#include "common/cli/print_result.h"
#include "common/cli/process_environment.h"
#include "common/cli/progress_line.h"
#include "common/cli/stop_signal.h"
#include "common/cluster/resolve_cluster.h"
#include "common/config/pipeline_config.h"
#include "common/config/validate_config.h"
#include "kernels/gpu.h"
#include "worker/cli/device_choice.h"
#include "worker/cli/device_flags.h"
#include "worker/eval/config_watcher.h"
#include "worker/eval/detections_file.h"
#include "worker/eval/evaluation.h"
#include "worker/eval/evaluator.h"

ABSL_FLAG(std::string, checkpoint_dir, "",
          "the folder with the ckpt-* folders: --train_dir of ps_server (required)");
ABSL_FLAG(
    std::string, eval_dir, "",
    "folder for event files and the files best_checkpoint and evaluating; default: eval in "
    "checkpoint_dir. The server reads these two files only there, to keep the checkpoints that "
    "they name. With --run_once they are written only if this flag is given");
ABSL_FLAG(std::string, pipeline_config_path, "",
          "default: pipeline.config in checkpoint_dir, which the server writes; the evaluator "
          "waits for it, and begins anew if its model, eval_config or eval_input_reader changes");
ABSL_FLAG(bool, run_once, false,
          "evaluate only the newest checkpoint that can be used and print its metrics as JSON on "
          "stdout; a warning names newer ones that are damaged");
ABSL_FLAG(
    std::string, detections, "",
    "measure the detections in this file instead of checkpoints, and print the metrics as JSON "
    "on stdout. The file is COCO's results JSON: image_id is the number of the example in "
    "eval_input_reader, from 0, bbox is [x, y, width, height] in pixels. Needs "
    "--pipeline_config_path, of a detector with the same classes");
ABSL_FLAG(int, threads, 0, "CPU threads; 0: one per core");
ABSL_FLAG(std::string, data_dir, "", "folder that relative paths of the pipeline config begin in");
ABSL_FLAG(int, wait_secs, 600,
          "how long to wait for checkpoint_dir and pipeline.config to appear, and with --run_once "
          "for a checkpoint, or for the newest one if it cannot be read at the moment");

namespace pushpull {
namespace {

absl::Status CheckFlags() {
  const bool of_checkpoints = absl::GetFlag(FLAGS_detections).empty();
  if (of_checkpoints && absl::GetFlag(FLAGS_checkpoint_dir).empty()) {
    return UsageError("--checkpoint_dir is missing: the train_dir of ps_server");
  }
  if (!of_checkpoints && !absl::GetFlag(FLAGS_checkpoint_dir).empty()) {
    return UsageError("--checkpoint_dir and --detections are both given: expected one of them");
  }
  if (!of_checkpoints && absl::GetFlag(FLAGS_pipeline_config_path).empty()) {
    return UsageError(
        "--detections needs --pipeline_config_path, whose eval_input_reader has the "
        "ground truth");
  }
  if (!of_checkpoints) {
    PP_RETURN_IF_ERROR(CheckNotSet({"run_once", "eval_dir", "wait_secs", "threads", "device",
                                    "gpus", "precision", "gpu_memory_limit_mb", "cpu_isa"},
                                   "--detections"));
  }
  PP_RETURN_IF_ERROR(CheckFlagsOfOneDevice());
  const absl::Status role = CheckRole(Role::kEvaluator, ProcessEnvironment());
  if (!role.ok()) return WithExitCode(role, kExitUsage);
  PP_RETURN_IF_ERROR(CheckAtLeast("threads", absl::GetFlag(FLAGS_threads), 0));
  PP_RETURN_IF_ERROR(CheckAtLeast("wait_secs", absl::GetFlag(FLAGS_wait_secs), 0));
  return absl::OkStatus();
}

absl::StatusOr<config::TrainEvalPipelineConfig> LoadConfig(const std::string& path) {
  ConfigContext context;
  context.data_dir = absl::GetFlag(FLAGS_data_dir);
  context.check_eval_input = true;
  return LoadValidConfig(path, context);
}

// Loads the config and evaluates with it. Returns whether Evaluator::Run has ended because the
// config in checkpoint_dir has changed.
absl::StatusOr<bool> EvaluateWithOneConfig(EvaluatorContext context, const ComputeOptions& compute,
                                           EvaluatorOptions options) {
  std::string config_path = absl::GetFlag(FLAGS_pipeline_config_path);
  const bool follows_config = config_path.empty();
  if (follows_config) {
    PP_RETURN_IF_ERROR(WaitForFolder(context, options.checkpoint_dir, options.wait));
    config_path = JoinPath(options.checkpoint_dir, kTrainDirConfigName);
    PP_RETURN_IF_ERROR(WaitForPath(context, config_path, options.wait));
  }
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config, LoadConfig(config_path));
  options.eval_interval = absl::Seconds(config.eval_config().eval_interval_secs());
  options.max_evals = config.eval_config().max_evals();
  options.use_moving_averages = config.eval_config().use_moving_averages();
  options.config_digest = EvaluationDigest(config);
  ConfigWatcher watcher(context.files, config_path, config);
  if (follows_config) context.config = &watcher;
  PP_ASSIGN_OR_RETURN(
      const std::unique_ptr<Evaluation> evaluation,
      MakeEvaluation(config, absl::GetFlag(FLAGS_data_dir), compute, context.files, *context.stop));
  Evaluator evaluator(options, context, evaluation.get());
  PP_RETURN_IF_ERROR(evaluator.Run());
  return evaluator.config_has_changed();
}

absl::Status RunEvaluator(const EvaluatorContext& context, const ChosenDevice& chosen) {
  EvaluatorOptions options;
  options.checkpoint_dir = absl::GetFlag(FLAGS_checkpoint_dir);
  options.run_once = absl::GetFlag(FLAGS_run_once);
  options.eval_dir = absl::GetFlag(FLAGS_eval_dir);
  // A single evaluation, perhaps with another config, does not decide for a running evaluator.
  options.records_best = !options.run_once || !options.eval_dir.empty();
  if (options.eval_dir.empty()) options.eval_dir = JoinPath(options.checkpoint_dir, "eval");
  options.wait = absl::Seconds(absl::GetFlag(FLAGS_wait_secs));

  int threads = absl::GetFlag(FLAGS_threads);
  if (threads == 0) threads = NumCores();
  ComputeOptions compute;
  compute.threads = threads;
  compute.device = chosen.device.get();
  compute.precision = chosen.precision;
  while (true) {
    PP_ASSIGN_OR_RETURN(const bool config_has_changed,
                        EvaluateWithOneConfig(context, compute, options));
    if (!config_has_changed) return absl::OkStatus();
  }
}

absl::Status RunOnDetections(const EvaluatorContext& context) {
  const std::string path = absl::GetFlag(FLAGS_pipeline_config_path);
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config, LoadConfig(path));
  if (!config.model().has_ssd()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the model is no detector; --detections needs model.ssd with its num_classes"));
  }
  PP_ASSIGN_OR_RETURN(
      const EvaluationReport report,
      MeasureDetectionsFile(config, absl::GetFlag(FLAGS_data_dir), absl::GetFlag(FLAGS_detections),
                            context.files, *context.stop));
  LOG_IF(WARNING, !report.explanation.empty()) << report.explanation;
  nlohmann::ordered_json result;
  // An undefined metric (NaN) becomes null.
  for (const ScalarSummary& scalar : report.scalars) result[scalar.tag] = scalar.value;
  result["examples"] = report.examples;
  return PrintResult(*context.results, absl::StrCat(JsonLine(result), "\n"));
}

int Main(int argc, char** argv) {
  MainOptions main_options;
  main_options.usage =
      "Evaluates the checkpoints of a training run as they appear; ends when training has ended.";
  const MainArguments arguments = InitMain(argc, argv, main_options);
  if (arguments.check_config) {
    const std::string given = absl::GetFlag(FLAGS_pipeline_config_path);
    if (given.empty() && absl::GetFlag(FLAGS_checkpoint_dir).empty()) {
      return FinishMain(UsageError(
          "--check_config needs --pipeline_config_path, or --checkpoint_dir, whose folder "
          "has a config"));
    }
    return FinishMain(PrintEffectiveConfig(LoadConfig(
        given.empty() ? JoinPath(absl::GetFlag(FLAGS_checkpoint_dir), kTrainDirConfigName)
                      : given)));
  }
  if (absl::Status flags = CheckFlags(); !flags.ok()) return FinishMain(flags);
  std::atomic<bool> stop = false;
  const std::unique_ptr<StopSignal> signal = StopSignal::Install([&](int) { stop = true; });
  PosixFileSystem files;
  SteadyClock clock;
  ProgressLine progress(&std::cerr, &clock, ProgressOptionsFor(2));
  const EvaluatorContext context = {&files, &clock, &progress, &std::cout, &stop};
  if (!absl::GetFlag(FLAGS_detections).empty()) return FinishMain(RunOnDetections(context));

  const absl::StatusOr<ChosenDevice> chosen =
      OpenChosenDevice(DeviceFromFlags(), 0, {CountGpus, OpenGpu});
  if (!chosen.ok()) return FinishMain(chosen.status());
  LOG_IF(WARNING, !chosen->warning.empty()) << chosen->warning;
  LOG(INFO) << "evaluating on " << DescribeDevice(*chosen);
  const absl::Status status = RunEvaluator(context, *chosen);
  return FinishMain(WithDeviceExitCode(status, chosen->device.get()));
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) { return pushpull::Main(argc, argv); }
