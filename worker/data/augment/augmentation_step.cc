#include "worker/data/augment/augmentation_step.h"

#include <array>
#include <optional>
#include <utility>

#include "glog/logging.h"

#include "common/config/augmentation_steps.h"
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

using StepPointer = std::unique_ptr<AugmentationStep>;

// Makes the step that a message describes.
struct StepMaker {
  StepPointer operator()(const config::RandomHorizontalFlip& flip) const {
    return MakeRandomHorizontalFlip(flip.probability());
  }
  StepPointer operator()(const config::RandomVerticalFlip& flip) const {
    return MakeRandomVerticalFlip(flip.probability());
  }
  StepPointer operator()(const config::RandomRotation90& rotation) const {
    return MakeRandomRotation90(rotation.probability());
  }
  StepPointer operator()(const config::RandomPadImage& pad) const {
    const PadSizes sizes = {
        static_cast<int>(pad.min_image_height()), static_cast<int>(pad.min_image_width()),
        static_cast<int>(pad.max_image_height()), static_cast<int>(pad.max_image_width())};
    std::optional<std::array<float, 3>> colour;
    if (pad.pad_color_size() == 3) {
      colour = {pad.pad_color(0), pad.pad_color(1), pad.pad_color(2)};
    }
    return MakeRandomPadImage(sizes, colour);
  }
  StepPointer operator()(const config::RandomCropImage& crop) const {
    return MakeRandomCrop({ReadCrop(crop)});
  }
  StepPointer operator()(const config::SSDRandomCrop& message) const {
    std::vector<CropOptions> crops;
    for (const auto& operation : message.operations()) crops.push_back(ReadCrop(operation));
    return MakeRandomCrop(crops.empty() ? DefaultSsdCrops() : std::move(crops));
  }
  StepPointer operator()(const config::SSDRandomCropPad& message) const {
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
  StepPointer operator()(const config::SSDRandomCropFixedAspectRatio& message) const {
    std::vector<CropOptions> crops;
    for (const auto& operation : message.operations()) {
      crops.push_back(ReadCropOfAnyAspect(operation));
    }
    return MakeRandomCropFixedAspectRatio(crops.empty() ? DefaultSsdCrops() : std::move(crops),
                                          message.aspect_ratio());
  }
  StepPointer operator()(const config::RandomPixelValueScale& scale) const {
    return MakeRandomPixelValueScale(scale.minval(), scale.maxval());
  }
  StepPointer operator()(const config::RandomRGBtoGray& gray) const {
    return MakeRandomRgbToGray(gray.probability());
  }
  StepPointer operator()(const config::RGBtoGray&) const { return MakeRandomRgbToGray(1.0f); }
  StepPointer operator()(const config::RandomAdjustBrightness& brightness) const {
    return MakeRandomAdjustBrightness(brightness.max_delta());
  }
  StepPointer operator()(const config::RandomAdjustContrast& contrast) const {
    return MakeRandomAdjustContrast(contrast.min_delta(), contrast.max_delta());
  }
  StepPointer operator()(const config::RandomAdjustHue& hue) const {
    return MakeRandomAdjustHue(hue.max_delta());
  }
  StepPointer operator()(const config::RandomAdjustSaturation& saturation) const {
    return MakeRandomAdjustSaturation(saturation.min_delta(), saturation.max_delta());
  }
  StepPointer operator()(const config::RandomDistortColor& colour) const {
    return MakeRandomDistortColor(colour.color_ordering());
  }
  // This is no change of the decoded image, and the config check refuses those that are not built.
  StepPointer operator()(const config::RandomShift&) const { return nullptr; }
  StepPointer operator()(const config::NotSupported&) const { return nullptr; }
};

}  // namespace

std::unique_ptr<AugmentationStep> MakeAugmentationStep(const config::PreprocessingStep& step) {
  StepPointer made = VisitAugmentationStep(step, StepMaker());
  CHECK(made != nullptr) << "not a step of the decoded image: " << step.ShortDebugString();
  return made;
}

}  // namespace pushpull
