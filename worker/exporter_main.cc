// exporter writes the network of a checkpoint to one file, for use in other programs.
// Tested by tests/e2e/exporter_test.py.
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/file_system.h"
#include "common/base/output_folder.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/cli/exit_codes.h"
#include "common/cli/main_support.h"
#include "common/cli/print_result.h"
#include "common/config/validate_config.h"
#include "worker/data/class_names.h"
#include "worker/export/file_pair.h"
#include "worker/export/heads_file.h"
#include "worker/export/inference_model.h"
#include "worker/export/model_file.h"

ABSL_FLAG(std::string, checkpoint_dir, "",
          "the folder with the ckpt-* folders: --train_dir of ps_server (required)");
ABSL_FLAG(int64_t, step, -1,
          "the checkpoint to use; -1: the newest one of the run in checkpoint_dir");
ABSL_FLAG(
    std::string, output, "",
    "the file to write, atomically: model.onnx (opset 13) or model.safetensors; its folder is "
    "created if it does not exist");
ABSL_FLAG(std::string, weights, "auto",
          "raw: the weights; ema: their moving averages; auto: ema if the config has "
          "eval_config.use_moving_averages, as evaluator and detect do");
ABSL_FLAG(
    std::string, heads, "full",
    ".onnx: full: preprocessing and post-processing are in the graph; raw: the network alone, "
    "with a fixed input for one image, and anchors and the like in NAME.heads.json beside it");
ABSL_FLAG(std::string, label_map, "",
          "with --heads=raw: names of the classes for NAME.heads.json; default: as detect's");
ABSL_FLAG(std::string, data_dir, "",
          "with --heads=raw: folder that relative paths of the pipeline config begin in: those of "
          "the label map and of the class folders");

namespace pushpull {
namespace {

constexpr char kUsage[] =
    "Writes the network of a checkpoint to a file for other programs and prints one JSON object.\n"
    "  .onnx         takes uint8 images [N, H, W, channels] of any size. Detectors: input "
    "image_tensor; outputs detection_boxes (ymin, xmin, ymax, xmax within [0, 1]), "
    "detection_scores, detection_classes (counted from 1), num_detections, raw_detection_boxes and "
    "raw_detection_scores, suppression included. Classifiers: input `input`; outputs logits and "
    "probabilities.\n"
    "                --heads=raw is for compilers that refuse dynamic shapes and suppression: "
    "takes "
    "one prepared image, float32 [1, channels, height, width], and gives box_encodings and "
    "class_predictions_with_background; docs/USAGE.md shows how to decode them.\n"
    "  .safetensors  has every variable with TensorFlow's name.";

absl::Status CheckHeads(ModelFormat format) {
  const std::string heads = absl::GetFlag(FLAGS_heads);
  if (heads != "full" && heads != "raw") {
    return UsageError(absl::StrCat("--heads: expected full or raw, got \"", heads, "\""));
  }
  if (heads == "raw" && format != ModelFormat::kOnnx) {
    return UsageError("--heads=raw is for ONNX models only: end --output with .onnx");
  }
  if (heads == "full" &&
      !(absl::GetFlag(FLAGS_label_map).empty() && absl::GetFlag(FLAGS_data_dir).empty())) {
    return UsageError(
        "--label_map and --data_dir name the classes in the side file of --heads=raw; without it "
        "there is no such file");
  }
  return absl::OkStatus();
}

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
  return CheckHeads(*format);
}

absl::StatusOr<config::TrainEvalPipelineConfig> LoadConfig() {
  return LoadConfigOfTrainDir(absl::GetFlag(FLAGS_checkpoint_dir));
}

// Removes what describes the model with raw heads that was at `onnx_path` before, if there was one.
// A file of somebody else that has this name stays.
absl::Status RemoveOldHeadsFile(FileSystem& files, const std::string& onnx_path) {
  const std::string path = HeadsFilePath(onnx_path);
  if (const absl::Status own = CheckOwnHeadsFile(files, path); !own.ok()) {
    LOG(WARNING) << own.message() << "; the exporter leaves it alone";
    return absl::OkStatus();
  }
  const absl::Status removed = files.RemoveFile(path);
  if (absl::IsNotFound(removed)) return absl::OkStatus();
  PP_RETURN_IF_ERROR(removed);
  LOG(WARNING) << "removed " << path << ", which was about another model";
  return absl::OkStatus();
}

absl::Status Run() {
  PosixFileSystem files;
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config, LoadConfig());
  const std::string output = absl::GetFlag(FLAGS_output);
  PP_ASSIGN_OR_RETURN(const ModelFormat format, ModelFormatOf(output));
  const bool raw_heads = absl::GetFlag(FLAGS_heads) == "raw";
  if (raw_heads) {
    const absl::Status own = CheckOwnHeadsFile(files, HeadsFilePath(output));
    if (!own.ok()) {
      return Annotated(own, absl::StrCat("--heads=raw would replace a file: ", own.message(),
                                         "; give another --output"));
    }
  }
  const std::string weights = absl::GetFlag(FLAGS_weights);
  InferenceModelOptions options;
  options.step = absl::GetFlag(FLAGS_step);
  options.use_moving_averages =
      weights == "ema" || (weights == "auto" && config.eval_config().use_moving_averages());
  PP_ASSIGN_OR_RETURN(
      const InferenceModel model,
      LoadInferenceModel(files, absl::GetFlag(FLAGS_checkpoint_dir), config, options));
  PP_ASSIGN_OR_RETURN(std::string contents,
                      EncodeModel(model, raw_heads ? ModelFormat::kOnnxRawHeads : format));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFolder> folder,
                      OutputFolder::Make(&files, FolderOf(output)));
  const size_t size_bytes = contents.size();
  nlohmann::ordered_json result = {{"output", output},
                                   {"format", ModelFormatName(format)},
                                   {"model", model.network.name},
                                   {"step", model.step},
                                   {"weights", model.moving_averages ? "ema" : "raw"},
                                   {"variables", model.layout.num_variables()},
                                   {"bytes", size_bytes}};
  if (raw_heads) {
    PP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        FindClassNames(files, config,
                                       {.label_map = absl::GetFlag(FLAGS_label_map),
                                        .data_dir = absl::GetFlag(FLAGS_data_dir)}));
    const std::string heads_path = HeadsFilePath(output);
    PP_RETURN_IF_ERROR(WriteFilePair(files, {output, std::move(contents)},
                                     {heads_path, EncodeHeadsFile(model, names)}));
    result["heads_file"] = heads_path;
  } else {
    PP_RETURN_IF_ERROR(WriteFileAtomically(files, output, contents));
    if (format == ModelFormat::kOnnx) PP_RETURN_IF_ERROR(RemoveOldHeadsFile(files, output));
  }
  return PrintResult(std::cout, absl::StrCat(JsonLine(result), "\n"));
}

int Main(int argc, char** argv) {
  MainOptions options;
  options.usage = kUsage;
  const MainArguments arguments = InitMain(argc, argv, options);
  if (arguments.check_config) return FinishMain(PrintEffectiveConfig(LoadConfig()));
  if (absl::Status flags = CheckFlags(); !flags.ok()) return FinishMain(flags);
  return FinishMain(Run());
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) { return pushpull::Main(argc, argv); }
