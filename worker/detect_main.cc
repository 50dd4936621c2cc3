// detect finds objects in images with a trained detector, draws them and prints them as JSON.
// Tested by tests/e2e/detection_test.py.
#include <algorithm>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/file_system.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/cli/exit_codes.h"
#include "common/cli/main_support.h"
#include "common/config/validate_config.h"
#include "kernels/gpu.h"
#include "worker/cli/device_choice.h"
#include "worker/data/image_codec.h"
#include "worker/data/image_encoder.h"
#include "worker/data/image_source_factory.h"
#include "worker/data/label_map.h"
#include "worker/eval/detector.h"
#include "worker/eval/draw_boxes.h"

ABSL_FLAG(std::string, checkpoint_dir, "", "the train_dir of ps_server");
ABSL_FLAG(std::string, output_dir, "", "folder for the drawings; created if it does not exist");
ABSL_FLAG(int64_t, step, -1, "the checkpoint to use; -1: the newest one");
ABSL_FLAG(double, min_score, 0.5, "detections with a lower score are neither drawn nor printed");
ABSL_FLAG(int, max_boxes, 100, "draw and print at most this many detections per image, best first");
ABSL_FLAG(std::string, label_map, "",
          "names of the classes; default: label_map_path of the config's eval_input_reader");
ABSL_FLAG(std::string, data_dir, "",
          "folder that a relative label_map_path of the config begins in");
ABSL_FLAG(int, threads, 0, "CPU threads; 0: one per core");
ABSL_FLAG(std::vector<std::string>, gpus, {}, "the GPU to use: its index or UUID");
ABSL_FLAG(std::string, device, "",
          "cuda or cpu; default: cuda if --gpus is given or there is a GPU");
ABSL_FLAG(std::string, precision, "fp32", "precision of activations: fp32, or bf16 on a GPU");
ABSL_FLAG(int64_t, gpu_memory_limit_mb, 0,
          "GPU memory that this process may use, in MiB; 0: no limit");

namespace pushpull {
namespace {

DeviceFlags DeviceFromFlags() {
  DeviceFlags flags;
  flags.device = absl::GetFlag(FLAGS_device);
  flags.gpus = absl::GetFlag(FLAGS_gpus);
  flags.precision = absl::GetFlag(FLAGS_precision);
  flags.gpu_memory_limit_mb = absl::GetFlag(FLAGS_gpu_memory_limit_mb);
  return flags;
}

absl::Status CheckFlags(const std::vector<std::string>& paths) {
  if (absl::GetFlag(FLAGS_checkpoint_dir).empty()) {
    return UsageError("--checkpoint_dir is missing: the train_dir of ps_server");
  }
  if (absl::GetFlag(FLAGS_output_dir).empty()) {
    return UsageError("--output_dir is missing: the folder for the drawings");
  }
  if (paths.empty()) return UsageError("no image is given: name PNG, JPEG or PGM files");
  if (absl::GetFlag(FLAGS_threads) < 0 || absl::GetFlag(FLAGS_max_boxes) < 1) {
    return UsageError("--threads has to be at least 0 and --max_boxes at least 1");
  }
  if (absl::GetFlag(FLAGS_gpus).size() > 1) {
    return UsageError("--gpus names several GPUs: name one");
  }
  PP_RETURN_IF_ERROR(CheckDeviceFlags(DeviceFromFlags()));
  std::set<std::string> names;
  for (const std::string& path : paths) {
    if (!names.insert(FileNameOf(path)).second) {
      return UsageError(absl::StrCat("two images are called ", FileNameOf(path),
                                     ": their drawings would overwrite each other"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ClassNames(FileSystem& files,
                                                    const config::TrainEvalPipelineConfig& config) {
  std::string path = absl::GetFlag(FLAGS_label_map);
  if (path.empty() && config.eval_input_reader_size() > 0 &&
      !config.eval_input_reader(0).label_map_path().empty()) {
    path = ResolveDataPath(absl::GetFlag(FLAGS_data_dir),
                           config.eval_input_reader(0).label_map_path());
  }
  std::vector<std::string> names;
  if (path.empty()) return names;
  PP_ASSIGN_OR_RETURN(const LabelMap map, LabelMap::Load(files, path));
  for (int label = 0; label < map.num_classes(); ++label) names.push_back(map.name(label));
  return names;
}

// Writes the drawing to --output_dir and returns its path. A JPEG image gives a JPEG, any other
// image a PNG.
absl::StatusOr<std::string> WriteDrawing(FileSystem& files, const std::string& path,
                                         const Image& drawing) {
  std::string name = FileNameOf(path);
  std::string encoded;
  if (absl::EndsWithIgnoreCase(name, ".jpg") || absl::EndsWithIgnoreCase(name, ".jpeg")) {
    PP_RETURN_IF_ERROR(EncodeJpeg(drawing, 92, &encoded));
  } else {
    PP_RETURN_IF_ERROR(EncodePng(drawing, &encoded));
    if (!absl::EndsWithIgnoreCase(name, ".png")) name += ".png";
  }
  const std::string target = JoinPath(absl::GetFlag(FLAGS_output_dir), name);
  PP_RETURN_IF_ERROR(WriteFileAtomically(files, target, encoded));
  return target;
}

nlohmann::ordered_json ToJson(const DetectedBox& detection, const std::vector<std::string>& names) {
  const bool named =
      detection.label < static_cast<int>(names.size()) && !names[detection.label].empty();
  return {{"class", detection.label + 1},
          {"name", named ? names[detection.label] : absl::StrCat(detection.label + 1)},
          {"score", detection.score},
          {"box",
           {{"ymin", detection.box.ymin},
            {"xmin", detection.box.xmin},
            {"ymax", detection.box.ymax},
            {"xmax", detection.box.xmax}}}};
}

absl::StatusOr<nlohmann::ordered_json> ProcessImage(FileSystem& files, const std::string& path,
                                                    const std::vector<std::string>& names,
                                                    Detector* detector) {
  PP_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(files, path));
  Image image;
  PP_RETURN_IF_ERROR(DecodeImage(bytes, path, &image));
  PP_ASSIGN_OR_RETURN(DetectionRecord record, detector->Detect(image, path));
  const float min_score = static_cast<float>(absl::GetFlag(FLAGS_min_score));
  std::erase_if(record.detections,
                [min_score](const DetectedBox& box) { return box.score < min_score; });
  const size_t limit = static_cast<size_t>(absl::GetFlag(FLAGS_max_boxes));
  if (record.detections.size() > limit) record.detections.resize(limit);

  DrawOptions options;
  options.min_score = min_score;
  options.max_detections = absl::GetFlag(FLAGS_max_boxes);
  PP_ASSIGN_OR_RETURN(const std::string drawing,
                      WriteDrawing(files, path, DrawBoxes(image, record, names, options)));
  nlohmann::ordered_json detections = nlohmann::ordered_json::array();
  for (const DetectedBox& detection : record.detections) {
    detections.push_back(ToJson(detection, names));
  }
  return nlohmann::ordered_json{{"image", path},
                                {"height", image.height},
                                {"width", image.width},
                                {"drawing", drawing},
                                {"detections", detections}};
}

absl::StatusOr<config::TrainEvalPipelineConfig> LoadConfig() {
  return LoadValidConfig(JoinPath(absl::GetFlag(FLAGS_checkpoint_dir), "pipeline.config"), {});
}

// Processes all images and prints one line per image, a JSON object.
absl::Status Run(const std::vector<std::string>& paths, const ChosenDevice& chosen) {
  PosixFileSystem files;
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config, LoadConfig());
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, ClassNames(files, config));
  DetectorOptions options;
  options.step = absl::GetFlag(FLAGS_step);
  options.use_moving_averages = config.eval_config().use_moving_averages();
  options.compute.threads = absl::GetFlag(FLAGS_threads);
  options.compute.device = chosen.device.get();
  options.compute.precision = chosen.precision;
  if (options.compute.threads == 0) {
    options.compute.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  }
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Detector> detector,
                      Detector::Load(files, absl::GetFlag(FLAGS_checkpoint_dir), config, options));
  LOG(INFO) << "step " << detector->step() << ": processing " << paths.size() << " images";
  PP_RETURN_IF_ERROR(MakeDirectories(files, absl::GetFlag(FLAGS_output_dir)));
  for (const std::string& path : paths) {
    PP_ASSIGN_OR_RETURN(const nlohmann::ordered_json result,
                        ProcessImage(files, path, names, detector.get()));
    std::cout << result.dump() << std::endl;
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  MainOptions options;
  options.usage =
      "Finds objects in images (PNG, JPEG, PGM) with a trained detector, writes drawings to "
      "--output_dir and prints one JSON object per image, with boxes in pixels.";
  options.takes_arguments = true;
  const MainArguments arguments = InitMain(argc, argv, options);
  if (arguments.check_config) return FinishCheckConfig(LoadConfig());
  if (absl::Status flags = CheckFlags(arguments.arguments); !flags.ok()) return FinishMain(flags);
  const absl::StatusOr<ChosenDevice> chosen =
      OpenChosenDevice(DeviceFromFlags(), 0, {CountGpus, OpenGpu});
  if (!chosen.ok()) return FinishMain(chosen.status());
  LOG_IF(WARNING, !chosen->warning.empty())
      << chosen->warning << ": computing on the CPU; --device=cpu says that this is meant";
  LOG_IF(INFO, chosen->device != nullptr) << "computing on " << chosen->device->description();
  const absl::Status status = Run(arguments.arguments, *chosen);
  return FinishMain(WithDeviceExitCode(status, chosen->device.get()));
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) { return pushpull::Main(argc, argv); }
