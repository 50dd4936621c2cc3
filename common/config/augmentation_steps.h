// The list of all steps of train_config.data_augmentation_options, and the choice among them.
// Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_AUGMENTATION_STEPS_H_
#define PUSHPULL_COMMON_CONFIG_AUGMENTATION_STEPS_H_

#include "protos/pipeline.pb.h"

namespace pushpull {

// Calls visit with the message of the step and returns its result; returns a default-made result if
// no step is set. A step without a row does not compile, nor does a visitor that lacks a message. A
// step that is not built has the message NotSupported.
template <typename Visit>
auto VisitAugmentationStep(const config::PreprocessingStep& step, const Visit& visit)
    -> decltype(visit(step.random_horizontal_flip())) {
  switch (step.preprocessing_step_case()) {
    // clang-format off
#define PUSHPULL_ROW(Case, field) \
    case config::PreprocessingStep::Case: return visit(step.field());
    PUSHPULL_ROW(kNormalizeImage, normalize_image)
    PUSHPULL_ROW(kRandomHorizontalFlip, random_horizontal_flip)
    PUSHPULL_ROW(kRandomPixelValueScale, random_pixel_value_scale)
    PUSHPULL_ROW(kRandomImageScale, random_image_scale)
    PUSHPULL_ROW(kRandomRgbToGray, random_rgb_to_gray)
    PUSHPULL_ROW(kRandomAdjustBrightness, random_adjust_brightness)
    PUSHPULL_ROW(kRandomAdjustContrast, random_adjust_contrast)
    PUSHPULL_ROW(kRandomAdjustHue, random_adjust_hue)
    PUSHPULL_ROW(kRandomAdjustSaturation, random_adjust_saturation)
    PUSHPULL_ROW(kRandomDistortColor, random_distort_color)
    PUSHPULL_ROW(kRandomJitterBoxes, random_jitter_boxes)
    PUSHPULL_ROW(kRandomCropImage, random_crop_image)
    PUSHPULL_ROW(kRandomPadImage, random_pad_image)
    PUSHPULL_ROW(kRandomCropPadImage, random_crop_pad_image)
    PUSHPULL_ROW(kRandomCropToAspectRatio, random_crop_to_aspect_ratio)
    PUSHPULL_ROW(kRandomBlackPatches, random_black_patches)
    PUSHPULL_ROW(kRandomResizeMethod, random_resize_method)
    PUSHPULL_ROW(kScaleBoxesToPixelCoordinates, scale_boxes_to_pixel_coordinates)
    PUSHPULL_ROW(kResizeImage, resize_image)
    PUSHPULL_ROW(kSubtractChannelMean, subtract_channel_mean)
    PUSHPULL_ROW(kSsdRandomCrop, ssd_random_crop)
    PUSHPULL_ROW(kSsdRandomCropPad, ssd_random_crop_pad)
    PUSHPULL_ROW(kSsdRandomCropFixedAspectRatio, ssd_random_crop_fixed_aspect_ratio)
    PUSHPULL_ROW(kSsdRandomCropPadFixedAspectRatio, ssd_random_crop_pad_fixed_aspect_ratio)
    PUSHPULL_ROW(kRandomVerticalFlip, random_vertical_flip)
    PUSHPULL_ROW(kRandomRotation90, random_rotation90)
    PUSHPULL_ROW(kRgbToGray, rgb_to_gray)
    PUSHPULL_ROW(kConvertClassLogitsToSoftmax, convert_class_logits_to_softmax)
    PUSHPULL_ROW(kRandomAbsolutePadImage, random_absolute_pad_image)
    PUSHPULL_ROW(kRandomSelfConcatImage, random_self_concat_image)
    PUSHPULL_ROW(kAutoaugmentImage, autoaugment_image)
    PUSHPULL_ROW(kDropLabelProbabilistically, drop_label_probabilistically)
    PUSHPULL_ROW(kRemapLabels, remap_labels)
    PUSHPULL_ROW(kRandomJpegQuality, random_jpeg_quality)
    PUSHPULL_ROW(kRandomDownscaleToTargetPixels, random_downscale_to_target_pixels)
    PUSHPULL_ROW(kRandomPatchGaussian, random_patch_gaussian)
    PUSHPULL_ROW(kRandomSquareCropByScale, random_square_crop_by_scale)
    PUSHPULL_ROW(kRandomScaleCropAndPadToSquare, random_scale_crop_and_pad_to_square)
    PUSHPULL_ROW(kAdjustGamma, adjust_gamma)
    PUSHPULL_ROW(kRandomShift, random_shift)
#undef PUSHPULL_ROW
    // clang-format on
    case config::PreprocessingStep::PREPROCESSING_STEP_NOT_SET:
      break;
  }
  return decltype(visit(step.random_horizontal_flip()))();
}

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_AUGMENTATION_STEPS_H_
