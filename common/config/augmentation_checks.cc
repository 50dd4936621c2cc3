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

// Checks each element of a repeated field `operations`.
template <typename Operations, typename Check>
void CheckOperations(const Operations& operations, const std::string& field, Check check,
                     FieldChecker* checker) {
  for (int i = 0; i < operations.size(); ++i) {
    check(operations[i], absl::StrCat(field, ".operations[", i, "]"), checker);
  }
}

void CheckCropFixedAspectRatio(const config::SSDRandomCropFixedAspectRatio& crop,
                               const std::string& field, FieldChecker* checker) {
  checker->Positive(field + ".aspect_ratio", crop.aspect_ratio());
  CheckOperations(crop.operations(), field,
                  CheckCropOfAnyAspect<config::SSDRandomCropFixedAspectRatioOperation>, checker);
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

// Checks a step that is done to each image with a probability.
template <typename Message>
void CheckProbability(const Message& step, const std::string& field, FieldChecker* checker) {
  checker->Within(field + ".probability", step.probability(), 0.0, 1.0);
}

// Checks a step that draws its strength from a range.
template <typename Message>
void CheckDeltas(const Message& step, const std::string& field, FieldChecker* checker) {
  checker->Range(field + ".min_delta", step.min_delta(), field + ".max_delta", step.max_delta());
}

template <typename Message>
void CheckMaxDelta(const Message& step, const std::string& field, double maximum,
                   FieldChecker* checker) {
  checker->Within(field + ".max_delta", step.max_delta(), 0.0, maximum);
}

void CheckStep(const config::PreprocessingStep& step, const std::string& field,
               FieldChecker* checker) {
  switch (step.preprocessing_step_case()) {
    case config::PreprocessingStep::kRandomHorizontalFlip:
      return CheckProbability(step.random_horizontal_flip(), field + ".random_horizontal_flip",
                              checker);
    case config::PreprocessingStep::kRandomVerticalFlip:
      return CheckProbability(step.random_vertical_flip(), field + ".random_vertical_flip",
                              checker);
    case config::PreprocessingStep::kRandomRotation90:
      return CheckProbability(step.random_rotation90(), field + ".random_rotation90", checker);
    case config::PreprocessingStep::kRandomPixelValueScale: {
      const auto& scale = step.random_pixel_value_scale();
      const std::string path = field + ".random_pixel_value_scale";
      return checker->Range(path + ".minval", scale.minval(), path + ".maxval", scale.maxval());
    }
    case config::PreprocessingStep::kRandomRgbToGray:
      return CheckProbability(step.random_rgb_to_gray(), field + ".random_rgb_to_gray", checker);
    case config::PreprocessingStep::kRandomAdjustBrightness:
      return CheckMaxDelta(step.random_adjust_brightness(), field + ".random_adjust_brightness",
                           1.0, checker);
    case config::PreprocessingStep::kRandomAdjustContrast:
      return CheckDeltas(step.random_adjust_contrast(), field + ".random_adjust_contrast", checker);
    case config::PreprocessingStep::kRandomAdjustHue:
      return CheckMaxDelta(step.random_adjust_hue(), field + ".random_adjust_hue", 0.5, checker);
    case config::PreprocessingStep::kRandomAdjustSaturation:
      return CheckDeltas(step.random_adjust_saturation(), field + ".random_adjust_saturation",
                         checker);
    case config::PreprocessingStep::kRandomDistortColor:
      return checker->Between(field + ".random_distort_color.color_ordering",
                              step.random_distort_color().color_ordering(), 0, 1);
    case config::PreprocessingStep::kRandomCropImage:
      return CheckCrop(step.random_crop_image(), field + ".random_crop_image", checker);
    case config::PreprocessingStep::kSsdRandomCrop:
      return CheckOperations(step.ssd_random_crop().operations(), field + ".ssd_random_crop",
                             CheckCrop<config::SSDRandomCropOperation>, checker);
    case config::PreprocessingStep::kSsdRandomCropPad:
      return CheckOperations(step.ssd_random_crop_pad().operations(),
                             field + ".ssd_random_crop_pad", CheckCropPad, checker);
    case config::PreprocessingStep::kSsdRandomCropFixedAspectRatio:
      return CheckCropFixedAspectRatio(step.ssd_random_crop_fixed_aspect_ratio(),
                                       field + ".ssd_random_crop_fixed_aspect_ratio", checker);
    case config::PreprocessingStep::kRandomPadImage:
      return CheckPad(step.random_pad_image(), field + ".random_pad_image", checker);
    case config::PreprocessingStep::kRandomShift:
      return checker->Between(field + ".random_shift.max_pixels", step.random_shift().max_pixels(),
                              0, kMaxShiftPixels);
    case config::PreprocessingStep::PREPROCESSING_STEP_NOT_SET:
      return checker->Missing(field, "a step such as random_horizontal_flip { }");
    case config::PreprocessingStep::kRgbToGray:
      return;
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
      return;
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
