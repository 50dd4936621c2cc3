#include "worker/export/model_metadata.h"

#include "absl/strings/str_cat.h"

namespace pushpull {

std::map<std::string, std::string> DescribeModel(const InferenceModel& model) {
  const FeatureShape& input = model.network.input;
  return {{"model", model.network.name},
          {"step", absl::StrCat(model.step)},
          {"weights", model.moving_averages ? "ema" : "raw"},
          {"run_id", model.run_id},
          {"num_classes", absl::StrCat(model.network.num_classes)},
          {"input", absl::StrCat(input.height, "x", input.width, "x", input.channels)},
          {"preprocessing",
           absl::StrCat("bilinear resize to ", input.height, "x", input.width,
                        " (source = out * in_size / out_size), then x * (2 / 255) - 1")}};
}

}  // namespace pushpull
