// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/augmentation_checks.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

constexpr double kMaxPaddedSide = 8192.0;  // in pixels
constexpr double kMaxPaddedRatio = 16.0;
constexpr int kMaxShiftPixels = 1024;

// Checks any of the messages that describe a crop; they share field names. Leaves the aspect ratio
// out.
template <typename Message>
void CheckCropOfAnyAspect(const Message& crop, const std::string& field, FieldChecker* checker) {
  checker->Within(field + ".min_object_covered", crop.min_object_covered(), 0.0, 1.0);
  checker->Within(field + ".overlap_thresh", crop.overlap_thresh(), 0.0, 1.0);
  checker->Within(field + ".random_coef", crop.random_coef(), 0.0, 1.0);
  checker->Within(field + ".max_area", crop.max_area(), 0.0, 1.0);
  checker->Range(field + ".min_area", crop.min_area(), field + ".max_area", crop.max_area());
}

template <typename Message>
void CheckCrop(const Message& crop, const std::string& field, FieldChecker* checker) {
  CheckCropOfAnyAspect(crop, field, checker);
  checker->Positive(field + ".min_aspect_ratio", crop.min_aspect_ratio());
  checker->Range(field + ".min_aspect_ratio", crop.min_aspect_ratio(), field + ".max_aspect_ratio",
                 crop.max_aspect_ratio());
}

void CheckCropPad(const config::SSDRandomCropPadOperation& operation, const std::string& field,
                  FieldChecker* checker) {
  CheckCrop(operation, field, checker);
  const std::string low = field + ".min_padded_size_ratio";
  const std::string high = field + ".max_padded_size_ratio";
  const int lows = operation.min_padded_size_ratio_size();
  const int highs = operation.max_padded_size_ratio_size();
  if (lows != 2 || highs != 2) {
    checker->Add(lows != 2 ? low : high, "two numbers, for height and width",
                 absl::StrCat(lows != 2 ? lows : highs));
    return;
  }
  for (int axis = 0; axis < 2; ++axis) {
    checker->Positive(high, operation.max_padded_size_ratio(axis), kMaxPaddedRatio);
    checker->Range(low, operation.min_padded_size_ratio(axis), high,
                   operation.max_padded_size_ratio(axis));
  }
}

void CheckCropFixedAspectRatio(const config::SSDRandomCropFixedAspectRatio& crop,
                               const std::string& field, FieldChecker* checker) {
  checker->Positive(field + ".aspect_ratio", crop.aspect_ratio());
  for (int i = 0; i < crop.operations_size(); ++i) {
    CheckCropOfAnyAspect(crop.operations(i), absl::StrCat(field, ".operations[", i, "]"), checker);
  }
}

void CheckPad(const config::RandomPadImage& pad, const std::string& field, FieldChecker* checker) {
  checker->Within(field + ".min_image_height", pad.min_image_height(), 0.0, kMaxPaddedSide);
  checker->Within(field + ".min_image_width", pad.min_image_width(), 0.0, kMaxPaddedSide);
  checker->Within(field + ".max_image_height", pad.max_image_height(), 0.0, kMaxPaddedSide);
  checker->Within(field + ".max_image_width", pad.max_image_width(), 0.0, kMaxPaddedSide);
  if (pad.pad_color_size() != 0 && pad.pad_color_size() != 3) {
    checker->Add(field + ".pad_color", "three numbers (red, green, blue) or none",
                 absl::StrCat(pad.pad_color_size()));
  }
}

void CheckStep(const config::PreprocessingStep& step, const std::string& field,
               FieldChecker* checker) {
  switch (step.preprocessing_step_case()) {
    case config::PreprocessingStep::kRandomHorizontalFlip:
      checker->Within(field + ".random_horizontal_flip.probability",
                      step.random_horizontal_flip().probability(), 0.0, 1.0);
      break;
    case config::PreprocessingStep::kRandomVerticalFlip:
      checker->Within(field + ".random_vertical_flip.probability",
                      step.random_vertical_flip().probability(), 0.0, 1.0);
      break;
    case config::PreprocessingStep::kRandomRotation90:
      checker->Within(field + ".random_rotation90.probability",
                      step.random_rotation90().probability(), 0.0, 1.0);
      break;
    case config::PreprocessingStep::kRandomPixelValueScale: {
      const auto& scale = step.random_pixel_value_scale();
      const std::string path = field + ".random_pixel_value_scale";
      checker->Range(path + ".minval", scale.minval(), path + ".maxval", scale.maxval());
      break;
    }
    case config::PreprocessingStep::kRandomRgbToGray:
      checker->Within(field + ".random_rgb_to_gray.probability",
                      step.random_rgb_to_gray().probability(), 0.0, 1.0);
      break;
    case config::PreprocessingStep::kRandomAdjustBrightness:
      checker->Within(field + ".random_adjust_brightness.max_delta",
                      step.random_adjust_brightness().max_delta(), 0.0, 1.0);
      break;
    case config::PreprocessingStep::kRandomAdjustContrast: {
      const auto& contrast = step.random_adjust_contrast();
      const std::string path = field + ".random_adjust_contrast";
      checker->Range(path + ".min_delta", contrast.min_delta(), path + ".max_delta",
                     contrast.max_delta());
      break;
    }
    case config::PreprocessingStep::kRandomAdjustHue:
      checker->Within(field + ".random_adjust_hue.max_delta", step.random_adjust_hue().max_delta(),
                      0.0, 0.5);
      break;
    case config::PreprocessingStep::kRandomAdjustSaturation: {
      const auto& saturation = step.random_adjust_saturation();
      const std::string path = field + ".random_adjust_saturation";
      checker->Range(path + ".min_delta", saturation.min_delta(), path + ".max_delta",
                     saturation.max_delta());
      break;
    }
    case config::PreprocessingStep::kRandomDistortColor:
      checker->Between(field + ".random_distort_color.color_ordering",
                       step.random_distort_color().color_ordering(), 0, 1);
      break;
    case config::PreprocessingStep::kRandomCropImage:
      CheckCrop(step.random_crop_image(), field + ".random_crop_image", checker);
      break;
    case config::PreprocessingStep::kSsdRandomCrop:
      for (int i = 0; i < step.ssd_random_crop().operations_size(); ++i) {
        CheckCrop(step.ssd_random_crop().operations(i),
                  absl::StrCat(field, ".ssd_random_crop.operations[", i, "]"), checker);
      }
      break;
    case config::PreprocessingStep::kSsdRandomCropPad:
      for (int i = 0; i < step.ssd_random_crop_pad().operations_size(); ++i) {
        CheckCropPad(step.ssd_random_crop_pad().operations(i),
                     absl::StrCat(field, ".ssd_random_crop_pad.operations[", i, "]"), checker);
      }
      break;
    case config::PreprocessingStep::kSsdRandomCropFixedAspectRatio:
      CheckCropFixedAspectRatio(step.ssd_random_crop_fixed_aspect_ratio(),
                                field + ".ssd_random_crop_fixed_aspect_ratio", checker);
      break;
    case config::PreprocessingStep::kRandomPadImage:
      CheckPad(step.random_pad_image(), field + ".random_pad_image", checker);
      break;
    case config::PreprocessingStep::kRandomShift:
      checker->Between(field + ".random_shift.max_pixels", step.random_shift().max_pixels(), 0,
                       kMaxShiftPixels);
      break;
    case config::PreprocessingStep::PREPROCESSING_STEP_NOT_SET:
      checker->Missing(field, "a step such as random_horizontal_flip { }");
      break;
    case config::PreprocessingStep::kRgbToGray:
      break;
    // The marks of the schema refuse these.
    case config::PreprocessingStep::kNormalizeImage:
    case config::PreprocessingStep::kRandomImageScale:
    case config::PreprocessingStep::kRandomJitterBoxes:
    case config::PreprocessingStep::kRandomCropPadImage:
    case config::PreprocessingStep::kRandomCropToAspectRatio:
    case config::PreprocessingStep::kRandomBlackPatches:
    case config::PreprocessingStep::kRandomResizeMethod:
    case config::PreprocessingStep::kScaleBoxesToPixelCoordinates:
    case config::PreprocessingStep::kResizeImage:
    case config::PreprocessingStep::kSubtractChannelMean:
    case config::PreprocessingStep::kSsdRandomCropPadFixedAspectRatio:
    case config::PreprocessingStep::kConvertClassLogitsToSoftmax:
    case config::PreprocessingStep::kRandomAbsolutePadImage:
    case config::PreprocessingStep::kRandomSelfConcatImage:
    case config::PreprocessingStep::kAutoaugmentImage:
    case config::PreprocessingStep::kDropLabelProbabilistically:
    case config::PreprocessingStep::kRemapLabels:
    case config::PreprocessingStep::kRandomJpegQuality:
    case config::PreprocessingStep::kRandomDownscaleToTargetPixels:
    case config::PreprocessingStep::kRandomPatchGaussian:
    case config::PreprocessingStep::kRandomSquareCropByScale:
    case config::PreprocessingStep::kRandomScaleCropAndPadToSquare:
    case config::PreprocessingStep::kAdjustGamma:
      break;
  }
}

}  // namespace

void CheckAugmentation(const config::TrainConfig& train, FieldChecker* checker) {
  const int steps = train.data_augmentation_options_size();
  for (int i = 0; i < steps; ++i) {
    const config::PreprocessingStep& step = train.data_augmentation_options(i);
    const std::string field = absl::StrCat("train_config.data_augmentation_options[", i, "]");
    CheckStep(step, field, checker);
    if (step.has_random_shift() && i + 1 != steps) {
      checker->Add(field, "random_shift as the last step", "a step after it",
                   "random_shift works on the network's input: move it to the end");
    }
  }
}

void CheckAugmentationOfBoxes(const config::TrainConfig& train, FieldChecker* checker) {
  for (int i = 0; i < train.data_augmentation_options_size(); ++i) {
    if (!train.data_augmentation_options(i).has_random_shift()) continue;
    checker->Add(absl::StrCat("train_config.data_augmentation_options[", i, "].random_shift"),
                 "a step that also moves the boxes, because the model is a detector",
                 "random_shift, which moves the pixels only",
                 "use random_crop_image or random_pad_image");
  }
}

}  // namespace pushpull
