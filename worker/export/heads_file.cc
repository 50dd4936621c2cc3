#include "worker/export/heads_file.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "kernels/detection/anchors.h"
#include "worker/export/onnx_model.h"

namespace pushpull {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "pushpull-heads";
constexpr int kFormatVersion = 1;

Json DescribePreprocessing(const NetworkSpec& network) {
  Json json = {{"resize", network.keep_aspect_ratio ? "keep_aspect_ratio" : "fixed"}};
  if (network.keep_aspect_ratio.has_value()) {
    const AspectRatioResize& resize = *network.keep_aspect_ratio;
    json["min_dimension"] = resize.min_dimension;
    json["max_dimension"] = resize.max_dimension;
    json["pad_value"] = Json::array();
    for (int c = 0; c < network.input.channels; ++c) {
      json["pad_value"].push_back(resize.pad_value[c]);
    }
  }
  json["scale"] = 2.0 / 255.0;
  json["offset"] = -1.0;
  return json;
}

std::string ScoreConverterName(PostProcessingSpec::ScoreConverter converter) {
  switch (converter) {
    case PostProcessingSpec::ScoreConverter::kIdentity:
      return "IDENTITY";
    case PostProcessingSpec::ScoreConverter::kSigmoid:
      return "SIGMOID";
    case PostProcessingSpec::ScoreConverter::kSoftmax:
      return "SOFTMAX";
  }
  LOG(FATAL) << "unknown score converter " << static_cast<int>(converter);
}

void AddDetection(const DetectionSpec& spec, Json* json) {
  const FasterRcnnBoxCoderSpec& coder = spec.box_coder;
  const PostProcessingSpec& post = spec.post_processing;
  (*json)["boxes"] = {{"name", kRawBoxes},
                      {"y_scale", coder.y_scale},
                      {"x_scale", coder.x_scale},
                      {"height_scale", coder.height_scale},
                      {"width_scale", coder.width_scale}};
  (*json)["scores"] = {{"name", kRawScores},
                       {"score_converter", ScoreConverterName(post.score_converter)},
                       {"logit_scale", post.logit_scale}};
  (*json)["suppression"] = {{"score_threshold", post.score_threshold},
                            {"iou_threshold", post.iou_threshold},
                            {"max_detections_per_class", post.max_detections_per_class},
                            {"max_total_detections", post.max_total_detections}};
  Json& anchors = (*json)["anchors"] = Json::array();
  for (const BoundingBox& anchor : GenerateAnchors(spec.anchors, spec.heads)) {
    anchors.push_back({anchor.ymin, anchor.xmin, anchor.ymax, anchor.xmax});
  }
}

}  // namespace

std::string HeadsFilePath(const std::string& onnx_path) {
  CHECK(absl::EndsWith(onnx_path, ".onnx")) << onnx_path;
  return absl::StrCat(absl::StripSuffix(onnx_path, ".onnx"), ".heads.json");
}

absl::Status CheckOwnHeadsFile(FileSystem& files, const std::string& path) {
  const absl::StatusOr<std::string> contents = ReadWholeFile(files, path);
  if (absl::IsNotFound(contents.status())) return absl::OkStatus();
  PP_RETURN_IF_ERROR(contents.status());
  const Json json = Json::parse(*contents, nullptr, false);
  if (json.is_object() && json.contains("format") && json["format"] == kFormat) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is not a file of exporter --heads=raw: it does not have \"format\": \"",
                   kFormat, "\""));
}

std::string EncodeHeadsFile(const InferenceModel& model,
                            const std::vector<std::string>& class_names) {
  const NetworkSpec& network = model.network;
  const FeatureShape& input = network.input;
  Json json = {{"format", kFormat},
               {"format_version", kFormatVersion},
               {"model", network.name},
               {"step", model.step},
               {"weights", model.moving_averages ? "ema" : "raw"},
               {"run_id", model.run_id},
               {"input",
                {{"name", kRawInput},
                 {"shape", {1, input.channels, input.height, input.width}},
                 {"channels", input.channels == 1 ? "grey" : "RGB"}}},
               {"preprocessing", DescribePreprocessing(network)},
               {"num_classes", network.num_classes}};
  if (!class_names.empty()) json["class_names"] = class_names;
  if (network.detection.has_value()) AddDetection(*network.detection, &json);
  return JsonLine(json) + "\n";
}

}  // namespace pushpull
