// exporter writes the network of a checkpoint to one file, for use in other programs.
// Tested by tests/e2e/exporter_test.py.
#include <iostream>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/file_system.h"
#include "common/base/status_macros.h"
#include "common/cli/exit_codes.h"
#include "common/cli/main_support.h"
#include "common/config/validate_config.h"
#include "worker/export/inference_model.h"
#include "worker/export/model_file.h"

ABSL_FLAG(std::string, checkpoint_dir, "", "the train_dir of ps_server");
ABSL_FLAG(int64_t, step, -1, "the checkpoint to use; -1: the newest one");
ABSL_FLAG(std::string, output, "",
          "the file to write, atomically: model.onnx (opset 13) or model.safetensors");
ABSL_FLAG(std::string, weights, "auto",
          "raw: the weights; ema: their moving averages; auto: ema if the config has "
          "eval_config.use_moving_averages, as evaluator and detect do");

namespace pushpull {
namespace {

constexpr char kUsage[] =
    "Writes the network of a checkpoint to a file for other programs and prints one JSON object.\n"
    "  .onnx         takes uint8 images [N, H, W, channels] of any size. Detectors: input "
    "image_tensor; outputs detection_boxes (ymin, xmin, ymax, xmax within [0, 1]), "
    "detection_scores, detection_classes (counted from 1), num_detections, raw_detection_boxes and "
    "raw_detection_scores, suppression included. Classifiers: input `input`; outputs logits and "
    "probabilities.\n"
    "  .safetensors  has every variable with TensorFlow's name.";

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_checkpoint_dir).empty()) {
    return UsageError("--checkpoint_dir is missing: the train_dir of ps_server");
  }
  if (absl::GetFlag(FLAGS_output).empty()) {
    return UsageError("--output is missing: the .onnx or .safetensors file to write");
  }
  const auto format = ModelFormatOf(absl::GetFlag(FLAGS_output));
  if (!format.ok()) return UsageError(absl::StrCat("--output: ", format.status().message()));
  if (absl::GetFlag(FLAGS_step) < -1) {
    return UsageError(absl::StrCat("--step: expected a step or -1 for the newest, got ",
                                   absl::GetFlag(FLAGS_step)));
  }
  const std::string weights = absl::GetFlag(FLAGS_weights);
  if (weights != "raw" && weights != "ema" && weights != "auto") {
    return UsageError(absl::StrCat("--weights: expected raw, ema or auto, got \"", weights, "\""));
  }
  return absl::OkStatus();
}

absl::StatusOr<config::TrainEvalPipelineConfig> LoadConfig() {
  return LoadValidConfig(JoinPath(absl::GetFlag(FLAGS_checkpoint_dir), "pipeline.config"), {});
}

absl::Status Run() {
  PosixFileSystem files;
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config, LoadConfig());
  const std::string output = absl::GetFlag(FLAGS_output);
  PP_ASSIGN_OR_RETURN(const ModelFormat format, ModelFormatOf(output));
  const std::string weights = absl::GetFlag(FLAGS_weights);
  InferenceModelOptions options;
  options.step = absl::GetFlag(FLAGS_step);
  options.use_moving_averages =
      weights == "ema" || (weights == "auto" && config.eval_config().use_moving_averages());
  PP_ASSIGN_OR_RETURN(
      const InferenceModel model,
      LoadInferenceModel(files, absl::GetFlag(FLAGS_checkpoint_dir), config, options));
  PP_ASSIGN_OR_RETURN(const std::string contents, EncodeModel(model, format));
  PP_RETURN_IF_ERROR(WriteFileAtomically(files, output, contents));
  const nlohmann::ordered_json result = {{"output", output},
                                         {"format", ModelFormatName(format)},
                                         {"model", model.network.name},
                                         {"step", model.step},
                                         {"weights", model.moving_averages ? "ema" : "raw"},
                                         {"variables", model.layout.num_variables()},
                                         {"bytes", contents.size()}};
  std::cout << result.dump() << std::endl;
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  MainOptions options;
  options.usage = kUsage;
  const MainArguments arguments = InitMain(argc, argv, options);
  if (arguments.check_config) return FinishCheckConfig(LoadConfig());
  if (absl::Status flags = CheckFlags(); !flags.ok()) return FinishMain(flags);
  return FinishMain(Run());
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) { return pushpull::Main(argc, argv); }
