// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/resizer_checks.h"

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr int kChannels = 3;

void CheckKeepAspectRatio(const config::KeepAspectRatioResizer& resizer, const std::string& field,
                          const SideLimits& limits, FieldChecker* checker) {
  checker->Between(field + ".max_dimension", resizer.max_dimension(), limits.minimum,
                   limits.maximum);
  checker->Between(field + ".min_dimension", resizer.min_dimension(), 1, resizer.max_dimension());
  if (!resizer.pad_to_max_dimension()) {
    checker->Add(field + ".pad_to_max_dimension", "true, for a network has one input size", "false",
                 "set it to true, or use fixed_shape_resizer");
  }
  const int pads = resizer.per_channel_pad_value_size();
  if (pads != 0 && pads != kChannels) {
    checker->Add(field + ".per_channel_pad_value", "none or three values, one per channel",
                 absl::StrCat(pads));
  }
  for (const float pad : resizer.per_channel_pad_value()) {
    if (pad >= 0.0f && pad <= 255.0f) continue;
    checker->Add(field + ".per_channel_pad_value", "values from 0 to 255", absl::StrCat(pad));
  }
}

}  // namespace

void CheckImageResizer(const config::ImageResizer& resizer, const std::string& field,
                       const SideLimits& limits, FieldChecker* checker) {
  if (resizer.has_keep_aspect_ratio_resizer()) {
    CheckKeepAspectRatio(resizer.keep_aspect_ratio_resizer(), field + ".keep_aspect_ratio_resizer",
                         limits, checker);
  } else if (resizer.has_fixed_shape_resizer()) {
    const config::FixedShapeResizer& fixed = resizer.fixed_shape_resizer();
    checker->Between(field + ".fixed_shape_resizer.height", fixed.height(), limits.minimum,
                     limits.maximum);
    checker->Between(field + ".fixed_shape_resizer.width", fixed.width(), limits.minimum,
                     limits.maximum);
  } else {
    checker->Missing(field, "fixed_shape_resizer { height: H width: W }");
  }
}

}  // namespace pushpull
