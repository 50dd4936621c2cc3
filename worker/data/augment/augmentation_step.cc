#include "worker/data/augment/augmentation_step.h"

#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "worker/data/augment/colour_steps.h"
#include "worker/data/augment/crop_steps.h"
#include "worker/data/augment/geometry_steps.h"

namespace pushpull {
namespace {

using StepOr = absl::StatusOr<std::unique_ptr<AugmentationStep>>;

absl::Status ValueError(const std::string& field, double got, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", got, ", expected ", expected));
}

absl::Status CheckBetween(const std::string& field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return ValueError(field, value, absl::StrCat("a number from ", low, " to ", high));
}

// Checks that 0 <= low <= high and that both are finite.
absl::Status CheckRange(const std::string& low_field, double low, const std::string& high_field,
                        double high) {
  if (!(low >= 0.0 && std::isfinite(low))) return ValueError(low_field, low, "0 or more");
  if (!(high >= low && std::isfinite(high))) {
    return ValueError(high_field, high, absl::StrCat("at least ", low_field, " (", low, ")"));
  }
  return absl::OkStatus();
}

absl::Status CheckCrop(const CropOptions& crop, const std::string& field) {
  PP_RETURN_IF_ERROR(
      CheckBetween(field + ".min_object_covered", crop.min_object_covered, 0.0, 1.0));
  PP_RETURN_IF_ERROR(CheckBetween(field + ".overlap_thresh", crop.overlap_thresh, 0.0, 1.0));
  PP_RETURN_IF_ERROR(CheckBetween(field + ".random_coef", crop.random_coef, 0.0, 1.0));
  PP_RETURN_IF_ERROR(CheckBetween(field + ".max_area", crop.max_area, 0.0, 1.0));
  PP_RETURN_IF_ERROR(
      CheckRange(field + ".min_area", crop.min_area, field + ".max_area", crop.max_area));
  if (!(crop.min_aspect_ratio > 0.0f)) {
    return ValueError(field + ".min_aspect_ratio", crop.min_aspect_ratio, "a number above 0");
  }
  return CheckRange(field + ".min_aspect_ratio", crop.min_aspect_ratio, field + ".max_aspect_ratio",
                    crop.max_aspect_ratio);
}

// Reads a crop from any of the config messages that describe one; they share field names.
template <typename Message>
absl::StatusOr<CropOptions> ReadCrop(const Message& message, const std::string& field) {
  CropOptions crop;
  crop.min_object_covered = message.min_object_covered();
  crop.min_aspect_ratio = message.min_aspect_ratio();
  crop.max_aspect_ratio = message.max_aspect_ratio();
  crop.min_area = message.min_area();
  crop.max_area = message.max_area();
  crop.overlap_thresh = message.overlap_thresh();
  crop.random_coef = message.random_coef();
  crop.clip_boxes = message.clip_boxes();
  PP_RETURN_IF_ERROR(CheckCrop(crop, field));
  return crop;
}

StepOr MakeSsdCrop(const config::SSDRandomCrop& message, const std::string& field) {
  std::vector<CropOptions> crops;
  for (int i = 0; i < message.operations_size(); ++i) {
    PP_ASSIGN_OR_RETURN(
        crops.emplace_back(),
        ReadCrop(message.operations(i), absl::StrCat(field, ".operations[", i, "]")));
  }
  return MakeRandomCrop(crops.empty() ? DefaultSsdCrops() : std::move(crops));
}

StepOr MakeSsdCropPad(const config::SSDRandomCropPad& message, const std::string& field) {
  std::vector<CropPadOptions> crops;
  for (int i = 0; i < message.operations_size(); ++i) {
    const config::SSDRandomCropPadOperation& operation = message.operations(i);
    const std::string path = absl::StrCat(field, ".operations[", i, "]");
    CropPadOptions& options = crops.emplace_back();
    PP_ASSIGN_OR_RETURN(options.crop, ReadCrop(operation, path));
    if (operation.min_padded_size_ratio_size() != 2 ||
        operation.max_padded_size_ratio_size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat(path,
                       ": min_padded_size_ratio and max_padded_size_ratio need two numbers "
                       "each, for height and width"));
    }
    for (int axis = 0; axis < 2; ++axis) {
      options.min_padded_size_ratio[axis] = operation.min_padded_size_ratio(axis);
      options.max_padded_size_ratio[axis] = operation.max_padded_size_ratio(axis);
      PP_RETURN_IF_ERROR(
          CheckRange(path + ".min_padded_size_ratio", operation.min_padded_size_ratio(axis),
                     path + ".max_padded_size_ratio", operation.max_padded_size_ratio(axis)));
      PP_RETURN_IF_ERROR(CheckBetween(path + ".max_padded_size_ratio",
                                      operation.max_padded_size_ratio(axis), 0.0, 16.0));
    }
    if (operation.has_pad_color_r() || operation.has_pad_color_g() || operation.has_pad_color_b()) {
      options.pad_colour = {operation.pad_color_r(), operation.pad_color_g(),
                            operation.pad_color_b()};
    }
  }
  if (crops.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, ".operations is empty, expected at least one"));
  }
  return MakeRandomCropPad(std::move(crops));
}

StepOr MakePad(const config::RandomPadImage& message, const std::string& field) {
  constexpr double kMaxSide = 8192.0;
  const PadSizes sizes = {
      static_cast<int>(message.min_image_height()), static_cast<int>(message.min_image_width()),
      static_cast<int>(message.max_image_height()), static_cast<int>(message.max_image_width())};
  for (const double side : {message.min_image_height(), message.min_image_width(),
                            message.max_image_height(), message.max_image_width()}) {
    PP_RETURN_IF_ERROR(CheckBetween(field + "'s sizes", side, 0.0, kMaxSide));
  }
  std::optional<std::array<float, 3>> colour;
  if (message.pad_color_size() == 3) {
    colour = {message.pad_color(0), message.pad_color(1), message.pad_color(2)};
  } else if (message.pad_color_size() != 0) {
    return ValueError(field + ".pad_color", message.pad_color_size(),
                      "three numbers (red, green, blue) or none");
  }
  return MakeRandomPadImage(sizes, colour);
}

StepOr MakeColourStep(const config::PreprocessingStep& step, const std::string& field) {
  switch (step.preprocessing_step_case()) {
    case config::PreprocessingStep::kRandomPixelValueScale: {
      const auto& scale = step.random_pixel_value_scale();
      const std::string path = field + ".random_pixel_value_scale";
      PP_RETURN_IF_ERROR(
          CheckRange(path + ".minval", scale.minval(), path + ".maxval", scale.maxval()));
      return MakeRandomPixelValueScale(scale.minval(), scale.maxval());
    }
    case config::PreprocessingStep::kRandomRgbToGray: {
      const float probability = step.random_rgb_to_gray().probability();
      PP_RETURN_IF_ERROR(
          CheckBetween(field + ".random_rgb_to_gray.probability", probability, 0.0, 1.0));
      return MakeRandomRgbToGray(probability);
    }
    case config::PreprocessingStep::kRgbToGray:
      return MakeRandomRgbToGray(1.0f);
    case config::PreprocessingStep::kRandomAdjustBrightness: {
      const float delta = step.random_adjust_brightness().max_delta();
      PP_RETURN_IF_ERROR(
          CheckBetween(field + ".random_adjust_brightness.max_delta", delta, 0.0, 1.0));
      return MakeRandomAdjustBrightness(delta);
    }
    case config::PreprocessingStep::kRandomAdjustContrast: {
      const auto& contrast = step.random_adjust_contrast();
      const std::string path = field + ".random_adjust_contrast";
      PP_RETURN_IF_ERROR(CheckRange(path + ".min_delta", contrast.min_delta(), path + ".max_delta",
                                    contrast.max_delta()));
      return MakeRandomAdjustContrast(contrast.min_delta(), contrast.max_delta());
    }
    case config::PreprocessingStep::kRandomAdjustHue: {
      const float delta = step.random_adjust_hue().max_delta();
      PP_RETURN_IF_ERROR(CheckBetween(field + ".random_adjust_hue.max_delta", delta, 0.0, 0.5));
      return MakeRandomAdjustHue(delta);
    }
    case config::PreprocessingStep::kRandomAdjustSaturation: {
      const auto& saturation = step.random_adjust_saturation();
      const std::string path = field + ".random_adjust_saturation";
      PP_RETURN_IF_ERROR(CheckRange(path + ".min_delta", saturation.min_delta(),
                                    path + ".max_delta", saturation.max_delta()));
      return MakeRandomAdjustSaturation(saturation.min_delta(), saturation.max_delta());
    }
    case config::PreprocessingStep::kRandomDistortColor: {
      const int order = step.random_distort_color().color_ordering();
      PP_RETURN_IF_ERROR(
          CheckBetween(field + ".random_distort_color.color_ordering", order, 0.0, 1.0));
      return MakeRandomDistortColor(order);
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": no supported step; see the README for the list"));
  }
}

}  // namespace

StepOr MakeAugmentationStep(const config::PreprocessingStep& step, const std::string& field) {
  switch (step.preprocessing_step_case()) {
    case config::PreprocessingStep::kRandomShift:
      return nullptr;
    case config::PreprocessingStep::kRandomHorizontalFlip:
      return MakeRandomHorizontalFlip();
    case config::PreprocessingStep::kRandomVerticalFlip:
      return MakeRandomVerticalFlip();
    case config::PreprocessingStep::kRandomRotation90:
      return MakeRandomRotation90();
    case config::PreprocessingStep::kRandomPadImage:
      return MakePad(step.random_pad_image(), field + ".random_pad_image");
    case config::PreprocessingStep::kRandomCropImage: {
      PP_ASSIGN_OR_RETURN(const CropOptions crop,
                          ReadCrop(step.random_crop_image(), field + ".random_crop_image"));
      return MakeRandomCrop({crop});
    }
    case config::PreprocessingStep::kSsdRandomCrop:
      return MakeSsdCrop(step.ssd_random_crop(), field + ".ssd_random_crop");
    case config::PreprocessingStep::kSsdRandomCropPad:
      return MakeSsdCropPad(step.ssd_random_crop_pad(), field + ".ssd_random_crop_pad");
    default:
      return MakeColourStep(step, field);
  }
}

}  // namespace pushpull
