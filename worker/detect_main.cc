// detect applies a trained model to images and prints what it finds as JSON: a detector's objects,
// which it draws too, or a classifier's most probable classes.
// Tested by tests/e2e/detection_test.py.
// Tested by tests/e2e/classification_test.py.
#include <sys/stat.h>

#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/file_system.h"
#include "common/base/num_cores.h"
#include "common/base/output_folder.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/cli/exit_codes.h"
#include "common/cli/flag_checks.h"
#include "common/cli/main_support.h"
#include "common/cli/print_result.h"
#include "common/config/validate_config.h"
#include "kernels/gpu.h"
#include "worker/cli/device_choice.h"
#include "worker/cli/device_flags.h"
#include "worker/data/class_names.h"
#include "worker/data/image_codec.h"
#include "worker/data/image_encoder.h"
#include "worker/data/image_paths.h"
#include "worker/eval/detector.h"
#include "worker/eval/draw_boxes.h"
#include "worker/eval/image_classifier.h"

ABSL_FLAG(std::string, checkpoint_dir, "",
          "the folder with the ckpt-* folders: --train_dir of ps_server (required)");
ABSL_FLAG(std::string, output_dir, "",
          "detectors: folder for the drawings; created if it does not exist");
ABSL_FLAG(int64_t, step, -1,
          "the checkpoint to use; -1: the newest one of the run in checkpoint_dir");
ABSL_FLAG(double, min_score, 0.5,
          "detectors: detections with a lower score are neither drawn nor printed; 0 to 1, or any "
          "number if the config has no score_converter");
ABSL_FLAG(int, max_boxes, 100,
          "detectors: draw and print at most this many detections per image, best first");
ABSL_FLAG(int, top_k, 5, "classifiers: print this many classes per image, most probable first");
ABSL_FLAG(std::string, label_map, "",
          "names of the classes; default: label_map_path of the config's eval_input_reader, or the "
          "class folders of train_input_reader or eval_input_reader");
ABSL_FLAG(
    std::string, data_dir, "",
    "folder that relative paths of the pipeline config begin in: those of the label map and of "
    "the class folders");
ABSL_FLAG(int, threads, 0, "CPU threads; 0: one per core");

namespace pushpull {
namespace {

absl::Status CheckFlags(const std::vector<std::string>& paths) {
  if (absl::GetFlag(FLAGS_checkpoint_dir).empty()) {
    return UsageError("--checkpoint_dir is missing: the train_dir of ps_server");
  }
  if (paths.empty()) {
    return UsageError("no image is given: name PNG, JPEG or PGM files, folders or globs");
  }
  if (absl::GetFlag(FLAGS_step) < -1) {
    return UsageError(absl::StrCat("--step: expected a step or -1 for the newest, got ",
                                   absl::GetFlag(FLAGS_step)));
  }
  PP_RETURN_IF_ERROR(CheckAtLeast("threads", absl::GetFlag(FLAGS_threads), 0));
  PP_RETURN_IF_ERROR(CheckAtLeast("max_boxes", absl::GetFlag(FLAGS_max_boxes), 1));
  PP_RETURN_IF_ERROR(CheckAtLeast("top_k", absl::GetFlag(FLAGS_top_k), 1));
  return CheckFlagsOfOneDevice();
}

// Checks that the network's scores can be above and below --min_score.
absl::Status CheckMinScore(const config::Ssd& ssd) {
  const double min_score = absl::GetFlag(FLAGS_min_score);
  // Scores that are not converted are those of the network, which have no bounds.
  if (ssd.post_processing().score_converter() == config::PostProcessing::IDENTITY) {
    return std::isfinite(min_score) ? absl::OkStatus()
                                    : UsageError("--min_score is no finite number");
  }
  if (min_score >= 0 && min_score <= 1) return absl::OkStatus();
  return UsageError(absl::StrCat("--min_score=", min_score, ", expected 0 to 1"));
}

bool IsJpegName(const std::string& name) {
  return absl::EndsWithIgnoreCase(name, ".jpg") || absl::EndsWithIgnoreCase(name, ".jpeg");
}

// Returns the path of an image's drawing in --output_dir. A JPEG image gives a JPEG, any other
// image a PNG.
std::string DrawingOf(const std::string& image) {
  const std::string name = FileNameOf(image);
  const bool keeps_name = IsJpegName(name) || absl::EndsWithIgnoreCase(name, ".png");
  return JoinPath(absl::GetFlag(FLAGS_output_dir), keeps_name ? name : absl::StrCat(name, ".png"));
}

// Says which file a path leads to, by device and number; nullopt: none.
using FileId = std::optional<std::pair<dev_t, ino_t>>;
FileId FileIdOf(const std::string& path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return std::nullopt;
  return std::make_pair(info.st_dev, info.st_ino);
}

// Checks that the drawings have a folder and overwrite neither each other nor an image.
absl::Status CheckDrawings(const std::vector<std::string>& images) {
  if (absl::GetFlag(FLAGS_output_dir).empty()) {
    return UsageError("--output_dir is missing: the folder for the drawings");
  }
  std::set<FileId> files;
  for (const std::string& image : images) files.insert(FileIdOf(image));
  std::map<std::string, std::string> drawings;
  for (const std::string& image : images) {
    const auto [drawing, is_new] = drawings.emplace(DrawingOf(image), image);
    if (!is_new) {
      return UsageError(absl::StrCat("the drawings of ", drawing->second, " and ", image,
                                     " would overwrite each other in ", drawing->first,
                                     "; draw them with two calls and another --output_dir"));
    }
    const FileId replaced = FileIdOf(drawing->first);
    if (replaced.has_value() && files.contains(replaced)) {
      return UsageError(absl::StrCat("the drawing of ", image, " would overwrite the image ",
                                     drawing->first, "; name another --output_dir"));
    }
  }
  return absl::OkStatus();
}

// Returns a name for the class, or an empty string if there is none.
std::string NameOf(int label, const std::vector<std::string>& names) {
  return label < static_cast<int>(names.size()) ? names[label] : "";
}

// Writes the drawing to DrawingOf(path) and returns that path.
absl::StatusOr<std::string> WriteDrawing(FileSystem& files, const std::string& path,
                                         const Image& drawing) {
  const std::string target = DrawingOf(path);
  std::string encoded;
  if (IsJpegName(target)) {
    PP_RETURN_IF_ERROR(EncodeJpeg(drawing, 92, &encoded));
  } else {
    PP_RETURN_IF_ERROR(EncodePng(drawing, &encoded));
  }
  PP_RETURN_IF_ERROR(WriteFileAtomically(files, target, encoded));
  return target;
}

nlohmann::ordered_json ToJson(const DetectedBox& detection, const std::vector<std::string>& names) {
  const std::string name = NameOf(detection.label, names);
  return {{"class", detection.label + 1},
          {"name", name.empty() ? absl::StrCat(detection.label + 1) : name},
          {"score", detection.score},
          {"box",
           {{"ymin", detection.box.ymin},
            {"xmin", detection.box.xmin},
            {"ymax", detection.box.ymax},
            {"xmax", detection.box.xmax}}}};
}

nlohmann::ordered_json ToJson(const ClassProbability& found,
                              const std::vector<std::string>& names) {
  nlohmann::ordered_json json = {{"class", found.label}};
  const std::string name = NameOf(found.label, names);
  if (!name.empty()) json["name"] = name;
  json["probability"] = found.probability;
  return json;
}

// Returns what the JSON objects of all images begin with.
nlohmann::ordered_json ImageJson(const std::string& path, const Image& image) {
  return {{"image", path}, {"height", image.height}, {"width", image.width}};
}

absl::StatusOr<nlohmann::ordered_json> DetectObjects(FileSystem& files, const std::string& path,
                                                     const Image& image,
                                                     const std::vector<std::string>& names,
                                                     Detector* detector) {
  PP_ASSIGN_OR_RETURN(DetectionRecord record, detector->Detect(image, path));
  const float min_score = static_cast<float>(absl::GetFlag(FLAGS_min_score));
  std::erase_if(record.detections,
                [min_score](const DetectedBox& box) { return box.score < min_score; });
  const size_t limit = static_cast<size_t>(absl::GetFlag(FLAGS_max_boxes));
  if (record.detections.size() > limit) record.detections.resize(limit);

  DrawOptions options;
  options.min_score = min_score;
  options.max_detections = absl::GetFlag(FLAGS_max_boxes);
  nlohmann::ordered_json json = ImageJson(path, image);
  PP_ASSIGN_OR_RETURN(json["drawing"],
                      WriteDrawing(files, path, DrawBoxes(image, record, names, options)));
  json["detections"] = nlohmann::ordered_json::array();
  for (const DetectedBox& detection : record.detections) {
    json["detections"].push_back(ToJson(detection, names));
  }
  return json;
}

absl::StatusOr<nlohmann::ordered_json> ClassifyImage(const std::string& path, const Image& image,
                                                     const std::vector<std::string>& names,
                                                     ImageClassifier* classifier) {
  PP_ASSIGN_OR_RETURN(const std::vector<ClassProbability> classes,
                      classifier->Classify(image, path, absl::GetFlag(FLAGS_top_k)));
  nlohmann::ordered_json json = ImageJson(path, image);
  json["classes"] = nlohmann::ordered_json::array();
  for (const ClassProbability& found : classes) json["classes"].push_back(ToJson(found, names));
  return json;
}

// Reads and decodes an image file, and logs if it is damaged.
absl::Status ReadImage(FileSystem& files, const std::string& path, Image* image) {
  PP_ASSIGN_OR_RETURN(const std::string bytes, ReadWholeFile(files, path));
  PP_RETURN_IF_ERROR(DecodeImage(bytes, path, image));
  LOG_IF(WARNING, !image->damage.empty()) << image->damage;
  return absl::OkStatus();
}

// Calls `process` with each image and its path, and prints the JSON object that it returns. Logs
// which images cannot be read and leaves them out; then the result is the first one's error.
using ProcessFn = absl::FunctionRef<absl::StatusOr<nlohmann::ordered_json>(const std::string& path,
                                                                           const Image& image)>;
absl::Status PrintEach(FileSystem& files, uint64_t step, const std::vector<std::string>& paths,
                       ProcessFn process) {
  LOG(INFO) << "step " << step << ": processing " << paths.size() << " images";
  absl::Status first_error;
  int64_t unread = 0;
  Image image;
  for (const std::string& path : paths) {
    if (absl::Status read = ReadImage(files, path, &image); !read.ok()) {
      LOG(ERROR) << read.message();
      first_error.Update(read);
      ++unread;
      continue;
    }
    PP_ASSIGN_OR_RETURN(const nlohmann::ordered_json json, process(path, image));
    PP_RETURN_IF_ERROR(PrintResult(std::cout, absl::StrCat(JsonLine(json), "\n")));
  }
  if (unread == 0) return absl::OkStatus();
  return Annotated(first_error,
                   absl::StrCat(unread, " of ", paths.size(),
                                " images could not be read; the first: ", first_error.message()));
}

absl::StatusOr<config::TrainEvalPipelineConfig> LoadConfig() {
  return LoadConfigOfTrainDir(absl::GetFlag(FLAGS_checkpoint_dir));
}

// Processes all images and prints one line per image, a JSON object.
absl::Status Run(const std::vector<std::string>& arguments, const ChosenDevice& chosen) {
  PosixFileSystem files;
  PP_ASSIGN_OR_RETURN(const config::TrainEvalPipelineConfig config, LoadConfig());
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> paths, ExpandImagePaths(arguments));
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                      FindClassNames(files, config,
                                     {.label_map = absl::GetFlag(FLAGS_label_map),
                                      .data_dir = absl::GetFlag(FLAGS_data_dir)}));
  const std::string checkpoint_dir = absl::GetFlag(FLAGS_checkpoint_dir);
  const std::string output_dir = absl::GetFlag(FLAGS_output_dir);
  TrainedNetworkOptions options;
  options.step = absl::GetFlag(FLAGS_step);
  options.use_moving_averages = config.eval_config().use_moving_averages();
  options.compute.threads = absl::GetFlag(FLAGS_threads);
  options.compute.device = chosen.device.get();
  options.compute.precision = chosen.precision;
  if (options.compute.threads == 0) {
    options.compute.threads = NumCores();
  }
  if (config.model().has_classifier()) {
    LOG_IF(WARNING, !output_dir.empty())
        << "--output_dir has no effect: only a detector's objects are drawn";
    PP_ASSIGN_OR_RETURN(const std::unique_ptr<ImageClassifier> classifier,
                        ImageClassifier::Load(files, checkpoint_dir, config, options));
    return PrintEach(files, classifier->step(), paths,
                     [&](const std::string& path, const Image& image) {
                       return ClassifyImage(path, image, names, classifier.get());
                     });
  }
  PP_RETURN_IF_ERROR(CheckMinScore(config.model().ssd()));
  PP_RETURN_IF_ERROR(CheckDrawings(paths));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Detector> detector,
                      Detector::Load(files, checkpoint_dir, config, options));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFolder> folder,
                      OutputFolder::Make(&files, output_dir));
  return PrintEach(files, detector->step(), paths,
                   [&](const std::string& path, const Image& image) {
                     return DetectObjects(files, path, image, names, detector.get());
                   });
}

int Main(int argc, char** argv) {
  MainOptions options;
  options.usage =
      "Applies a trained model to images (PNG, JPEG, PGM) and prints one JSON object per image. A "
      "detector's objects have boxes in pixels and are drawn into --output_dir; a classifier's "
      "classes are counted from 0. Arguments are images, folders of images, and globs in quotes.";
  options.takes_arguments = true;
  const MainArguments arguments = InitMain(argc, argv, options);
  if (arguments.check_config) return FinishMain(PrintEffectiveConfig(LoadConfig()));
  if (absl::Status flags = CheckFlags(arguments.arguments); !flags.ok()) return FinishMain(flags);
  const absl::StatusOr<ChosenDevice> chosen =
      OpenChosenDevice(DeviceFromFlags(), 0, {CountGpus, OpenGpu});
  if (!chosen.ok()) return FinishMain(chosen.status());
  LOG_IF(WARNING, !chosen->warning.empty()) << chosen->warning;
  LOG(INFO) << "computing on " << DescribeDevice(*chosen);
  const absl::Status status = Run(arguments.arguments, *chosen);
  return FinishMain(WithDeviceExitCode(status, chosen->device.get()));
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) { return pushpull::Main(argc, argv); }
