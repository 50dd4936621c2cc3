#include "worker/data/augmentation.h"

#include "absl/strings/str_cat.h"

#include "common/base/random.h"

namespace pushpull {

AugmentationSpec ParseAugmentation(
    const google::protobuf::RepeatedPtrField<config::PreprocessingStep>& steps) {
  AugmentationSpec spec;
  for (const config::PreprocessingStep& step : steps) {
    if (step.has_random_shift()) {
      spec.max_shift_pixels = static_cast<int>(step.random_shift().max_pixels());
    } else {
      spec.steps.push_back(MakeAugmentationStep(step));
    }
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
