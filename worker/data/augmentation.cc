#include "worker/data/augmentation.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr uint32_t kMaxShiftPixels = 1024;

}  // namespace

absl::StatusOr<AugmentationSpec> ParseAugmentation(
    const google::protobuf::RepeatedPtrField<config::PreprocessingStep>& steps) {
  AugmentationSpec spec;
  for (int i = 0; i < steps.size(); ++i) {
    const std::string field = absl::StrCat("train_config.data_augmentation_options[", i, "]");
    if (!steps[i].has_random_shift()) {
      PP_ASSIGN_OR_RETURN(std::unique_ptr<AugmentationStep> step,
                          MakeAugmentationStep(steps[i], field));
      spec.steps.push_back(std::move(step));
      continue;
    }
    const uint32_t pixels = steps[i].random_shift().max_pixels();
    if (i + 1 != steps.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          field, ": random_shift works on the network's input, so it has to be the last step"));
    }
    if (pixels > kMaxShiftPixels) {
      return absl::InvalidArgumentError(absl::StrCat(field, ".random_shift.max_pixels is ", pixels,
                                                     ", expected at most ", kMaxShiftPixels));
    }
    spec.max_shift_pixels = static_cast<int>(pixels);
  }
  return spec;
}

void Augment(const AugmentationSpec& spec, uint64_t seed, int64_t position, EditableImage* image,
             std::vector<Box>* boxes) {
  for (size_t i = 0; i < spec.steps.size(); ++i) {
    CounterRandom random(seed ^ StableHash(absl::StrCat("augmentation step ", i)),
                         static_cast<uint64_t>(position));
    spec.steps[i]->Apply(&random, image, boxes);
  }
}

Shift DrawShift(const AugmentationSpec& spec, uint64_t seed, int64_t position) {
  Shift shift;
  if (spec.max_shift_pixels == 0) return shift;
  CounterRandom random(seed ^ StableHash("augmentation"), static_cast<uint64_t>(position));
  const uint64_t choices = 2 * static_cast<uint64_t>(spec.max_shift_pixels) + 1;
  shift.y = static_cast<int>(random.NextBelow(choices)) - spec.max_shift_pixels;
  shift.x = static_cast<int>(random.NextBelow(choices)) - spec.max_shift_pixels;
  return shift;
}

}  // namespace pushpull
