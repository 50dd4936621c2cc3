// Tested by tests/common/config/validate_config_test.cc.
#include "common/config/augmentation_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"

#include "common/config/augmentation_steps.h"

namespace pushpull {
namespace {

constexpr double kMaxPaddedSide = 8192.0;  // in pixels
constexpr double kMaxPaddedRatio = 16.0;
constexpr double kMaxColour = 255.0;
constexpr int kMaxShiftPixels = 1024;

// Checks any of the messages that describe a crop; they share field names. Leaves the aspect ratio
// out.
template <typename Message>
void CheckCropOfAnyAspect(const Message& crop, const std::string& field, FieldChecker* checker) {
  checker->Within(field + ".min_object_covered", crop.min_object_covered(), 0.0, 1.0);
  checker->Within(field + ".overlap_thresh", crop.overlap_thresh(), 0.0, 1.0);
  checker->Within(field + ".random_coef", crop.random_coef(), 0.0, 1.0);
  // The operations of the SSD crops have no default, so an area that is left out is 0, and no
  // window would ever fit.
  checker->Positive(field + ".max_area", crop.max_area(), 1.0);
  if (!(crop.max_area() > 0)) return;
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
  }
  for (int axis = 0; axis < 2 && lows == 2 && highs == 2; ++axis) {
    checker->Positive(high, operation.max_padded_size_ratio(axis), kMaxPaddedRatio);
    checker->Range(low, operation.min_padded_size_ratio(axis), high,
                   operation.max_padded_size_ratio(axis));
  }
  checker->Within(field + ".pad_color_r", operation.pad_color_r(), 0.0, kMaxColour);
  checker->Within(field + ".pad_color_g", operation.pad_color_g(), 0.0, kMaxColour);
  checker->Within(field + ".pad_color_b", operation.pad_color_b(), 0.0, kMaxColour);
}

// Checks the message of a step. `field` is its path.
class StepChecker {
 public:
  StepChecker(const std::string& field, FieldChecker* checker) : field_(field), checker_(checker) {}

  void operator()(const config::RandomHorizontalFlip& flip) const {
    CheckProbability(flip.probability());
  }
  void operator()(const config::RandomVerticalFlip& flip) const {
    CheckProbability(flip.probability());
  }
  void operator()(const config::RandomRotation90& rotation) const {
    CheckProbability(rotation.probability());
  }
  void operator()(const config::RandomRGBtoGray& gray) const {
    CheckProbability(gray.probability());
  }
  void operator()(const config::RGBtoGray&) const {}
  void operator()(const config::RandomPixelValueScale& scale) const {
    checker_->Range(field_ + ".minval", scale.minval(), field_ + ".maxval", scale.maxval());
  }
  void operator()(const config::RandomAdjustBrightness& brightness) const {
    checker_->Within(field_ + ".max_delta", brightness.max_delta(), 0.0, 1.0);
  }
  void operator()(const config::RandomAdjustContrast& contrast) const {
    CheckDeltas(contrast.min_delta(), contrast.max_delta());
  }
  void operator()(const config::RandomAdjustHue& hue) const {
    checker_->Within(field_ + ".max_delta", hue.max_delta(), 0.0, 0.5);
  }
  void operator()(const config::RandomAdjustSaturation& saturation) const {
    CheckDeltas(saturation.min_delta(), saturation.max_delta());
  }
  void operator()(const config::RandomDistortColor& colour) const {
    checker_->Between(field_ + ".color_ordering", colour.color_ordering(), 0, 1);
  }
  void operator()(const config::RandomCropImage& crop) const { CheckCrop(crop, field_, checker_); }
  void operator()(const config::SSDRandomCrop& crop) const {
    for (int i = 0; i < crop.operations_size(); ++i) {
      CheckCrop(crop.operations(i), Operation(i), checker_);
    }
  }
  void operator()(const config::SSDRandomCropPad& crop) const {
    for (int i = 0; i < crop.operations_size(); ++i) {
      CheckCropPad(crop.operations(i), Operation(i), checker_);
    }
  }
  void operator()(const config::SSDRandomCropFixedAspectRatio& crop) const {
    checker_->Positive(field_ + ".aspect_ratio", crop.aspect_ratio());
    for (int i = 0; i < crop.operations_size(); ++i) {
      CheckCropOfAnyAspect(crop.operations(i), Operation(i), checker_);
    }
  }
  void operator()(const config::RandomPadImage& pad) const {
    CheckPaddedSide("height", pad.min_image_height(), pad.max_image_height());
    CheckPaddedSide("width", pad.min_image_width(), pad.max_image_width());
    if (pad.pad_color_size() != 0 && pad.pad_color_size() != 3) {
      checker_->Add(field_ + ".pad_color", "three numbers (red, green, blue) or none",
                    absl::StrCat(pad.pad_color_size()));
    }
    for (int i = 0; i < pad.pad_color_size(); ++i) {
      checker_->Within(absl::StrCat(field_, ".pad_color[", i, "]"), pad.pad_color(i), 0.0,
                       kMaxColour);
    }
  }
  void operator()(const config::RandomShift& shift) const {
    checker_->Between(field_ + ".max_pixels", shift.max_pixels(), 0, kMaxShiftPixels);
  }
  // The marks of the schema refuse these.
  void operator()(const config::NotSupported&) const {}

 private:
  void CheckProbability(double probability) const {
    checker_->Within(field_ + ".probability", probability, 0.0, 1.0);
  }
  void CheckDeltas(double min_delta, double max_delta) const {
    checker_->Range(field_ + ".min_delta", min_delta, field_ + ".max_delta", max_delta);
  }
  // A minimum or maximum of 0 depends on the image.
  void CheckPaddedSide(absl::string_view side, double minimum, double maximum) const {
    const std::string low = absl::StrCat(field_, ".min_image_", side);
    const std::string high = absl::StrCat(field_, ".max_image_", side);
    checker_->Within(low, minimum, 0.0, kMaxPaddedSide);
    checker_->Within(high, maximum, 0.0, kMaxPaddedSide);
    if (minimum > 0 && maximum > 0) checker_->Range(low, minimum, high, maximum);
  }
  std::string Operation(int i) const { return absl::StrCat(field_, ".operations[", i, "]"); }

  const std::string field_;
  FieldChecker* const checker_;
};

void CheckStep(const config::PreprocessingStep& step, const std::string& field,
               FieldChecker* checker) {
  if (step.preprocessing_step_case() == config::PreprocessingStep::PREPROCESSING_STEP_NOT_SET) {
    checker->Missing(field, "a step such as random_horizontal_flip { }");
    return;
  }
  const auto* const name = step.GetDescriptor()->FindFieldByNumber(step.preprocessing_step_case());
  VisitAugmentationStep(step, StepChecker(absl::StrCat(field, ".", name->name()), checker));
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
