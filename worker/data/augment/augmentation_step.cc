#include "worker/data/augment/augmentation_step.h"

#include <array>
#include <optional>
#include <utility>

#include "glog/logging.h"

#include "worker/data/augment/colour_steps.h"
#include "worker/data/augment/crop_steps.h"
#include "worker/data/augment/geometry_steps.h"

namespace pushpull {
namespace {

// Reads a crop from any of the config messages that describe one; they share field names. Leaves
// the aspect ratio out.
template <typename Message>
CropOptions ReadCropOfAnyAspect(const Message& message) {
  CropOptions crop;
  crop.min_object_covered = message.min_object_covered();
  crop.min_area = message.min_area();
  crop.max_area = message.max_area();
  crop.overlap_thresh = message.overlap_thresh();
  crop.random_coef = message.random_coef();
  crop.clip_boxes = message.clip_boxes();
  return crop;
}

template <typename Message>
CropOptions ReadCrop(const Message& message) {
  CropOptions crop = ReadCropOfAnyAspect(message);
  crop.min_aspect_ratio = message.min_aspect_ratio();
  crop.max_aspect_ratio = message.max_aspect_ratio();
  return crop;
}

std::unique_ptr<AugmentationStep> MakeSsdCrop(const config::SSDRandomCrop& message) {
  std::vector<CropOptions> crops;
  for (const auto& operation : message.operations()) crops.push_back(ReadCrop(operation));
  return MakeRandomCrop(crops.empty() ? DefaultSsdCrops() : std::move(crops));
}

std::unique_ptr<AugmentationStep> MakeSsdCropFixedAspectRatio(
    const config::SSDRandomCropFixedAspectRatio& message) {
  std::vector<CropOptions> crops;
  for (const auto& operation : message.operations()) {
    crops.push_back(ReadCropOfAnyAspect(operation));
  }
  return MakeRandomCropFixedAspectRatio(crops.empty() ? DefaultSsdCrops() : std::move(crops),
                                        message.aspect_ratio());
}

std::unique_ptr<AugmentationStep> MakeSsdCropPad(const config::SSDRandomCropPad& message) {
  std::vector<CropPadOptions> crops;
  for (const config::SSDRandomCropPadOperation& operation : message.operations()) {
    CropPadOptions& options = crops.emplace_back();
    options.crop = ReadCrop(operation);
    for (int axis = 0; axis < 2; ++axis) {
      options.min_padded_size_ratio[axis] = operation.min_padded_size_ratio(axis);
      options.max_padded_size_ratio[axis] = operation.max_padded_size_ratio(axis);
    }
    options.pad_colour = {operation.pad_color_r(), operation.pad_color_g(),
                          operation.pad_color_b()};
  }
  return MakeRandomCropPad(crops.empty() ? DefaultSsdCropPads() : std::move(crops));
}

std::unique_ptr<AugmentationStep> MakePad(const config::RandomPadImage& message) {
  const PadSizes sizes = {
      static_cast<int>(message.min_image_height()), static_cast<int>(message.min_image_width()),
      static_cast<int>(message.max_image_height()), static_cast<int>(message.max_image_width())};
  std::optional<std::array<float, 3>> colour;
  if (message.pad_color_size() == 3) {
    colour = {message.pad_color(0), message.pad_color(1), message.pad_color(2)};
  }
  return MakeRandomPadImage(sizes, colour);
}

}  // namespace

std::unique_ptr<AugmentationStep> MakeAugmentationStep(const config::PreprocessingStep& step) {
  switch (step.preprocessing_step_case()) {
    case config::PreprocessingStep::kRandomHorizontalFlip:
      return MakeRandomHorizontalFlip(step.random_horizontal_flip().probability());
    case config::PreprocessingStep::kRandomVerticalFlip:
      return MakeRandomVerticalFlip(step.random_vertical_flip().probability());
    case config::PreprocessingStep::kRandomRotation90:
      return MakeRandomRotation90(step.random_rotation90().probability());
    case config::PreprocessingStep::kRandomPadImage:
      return MakePad(step.random_pad_image());
    case config::PreprocessingStep::kRandomCropImage:
      return MakeRandomCrop({ReadCrop(step.random_crop_image())});
    case config::PreprocessingStep::kSsdRandomCrop:
      return MakeSsdCrop(step.ssd_random_crop());
    case config::PreprocessingStep::kSsdRandomCropPad:
      return MakeSsdCropPad(step.ssd_random_crop_pad());
    case config::PreprocessingStep::kSsdRandomCropFixedAspectRatio:
      return MakeSsdCropFixedAspectRatio(step.ssd_random_crop_fixed_aspect_ratio());
    case config::PreprocessingStep::kRandomPixelValueScale:
      return MakeRandomPixelValueScale(step.random_pixel_value_scale().minval(),
                                       step.random_pixel_value_scale().maxval());
    case config::PreprocessingStep::kRandomRgbToGray:
      return MakeRandomRgbToGray(step.random_rgb_to_gray().probability());
    case config::PreprocessingStep::kRgbToGray:
      return MakeRandomRgbToGray(1.0f);
    case config::PreprocessingStep::kRandomAdjustBrightness:
      return MakeRandomAdjustBrightness(step.random_adjust_brightness().max_delta());
    case config::PreprocessingStep::kRandomAdjustContrast:
      return MakeRandomAdjustContrast(step.random_adjust_contrast().min_delta(),
                                      step.random_adjust_contrast().max_delta());
    case config::PreprocessingStep::kRandomAdjustHue:
      return MakeRandomAdjustHue(step.random_adjust_hue().max_delta());
    case config::PreprocessingStep::kRandomAdjustSaturation:
      return MakeRandomAdjustSaturation(step.random_adjust_saturation().min_delta(),
                                        step.random_adjust_saturation().max_delta());
    case config::PreprocessingStep::kRandomDistortColor:
      return MakeRandomDistortColor(step.random_distort_color().color_ordering());
    default:
      LOG(FATAL) << "not a valid step: " << step.ShortDebugString();
  }
}

}  // namespace pushpull
