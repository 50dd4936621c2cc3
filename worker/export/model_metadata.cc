// Tested by tests/worker/export/onnx_model_test.cc.
// Tested by tests/worker/export/model_file_test.cc.
#include "worker/export/model_metadata.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"

namespace pushpull {
namespace {

std::string PreprocessingSentence(const NetworkSpec& network) {
  const FeatureShape& input = network.input;
  const std::string size = absl::StrCat(input.height, "x", input.width);
  const std::string source = " (source = out * in_size / out_size), ";
  const std::string normalization = "x * (2 / 255) - 1";
  if (!network.keep_aspect_ratio.has_value()) {
    return absl::StrCat("bilinear resize to ", size, source, "then ", normalization);
  }
  const AspectRatioResize& resize = *network.keep_aspect_ratio;
  return absl::StrCat(
      "bilinear resize to a shorter side of ", resize.min_dimension, ", or a longer side of ",
      resize.max_dimension, " where that is smaller", source,
      "padding below and on the right with ",
      absl::StrJoin(absl::MakeConstSpan(resize.pad_value).first(input.channels), ", "), " to ",
      size, ", then ", normalization);
}

}  // namespace

std::map<std::string, std::string> DescribeModel(const InferenceModel& model) {
  const FeatureShape& input = model.network.input;
  return {{"model", model.network.name},
          {"step", absl::StrCat(model.step)},
          {"weights", model.moving_averages ? "ema" : "raw"},
          {"run_id", model.run_id},
          {"num_classes", absl::StrCat(model.network.num_classes)},
          {"input", absl::StrCat(input.height, "x", input.width, "x", input.channels)},
          {"preprocessing", PreprocessingSentence(model.network)}};
}

}  // namespace pushpull
