// Steps that move pixels and cut nothing: flips, rotation, padding.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_GEOMETRY_STEPS_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_GEOMETRY_STEPS_H_

#include <array>
#include <memory>
#include <optional>

#include "worker/data/augment/augmentation_step.h"

namespace pushpull {

// Each with probability 1/2.
std::unique_ptr<AugmentationStep> MakeRandomHorizontalFlip();
std::unique_ptr<AugmentationStep> MakeRandomVerticalFlip();
std::unique_ptr<AugmentationStep> MakeRandomRotation90();  // counter-clockwise

// Sizes in pixels, inclusive; 0: the image's own size for a minimum, twice that for a maximum.
// Never below the image's size.
struct PadSizes {
  int min_height = 0;
  int min_width = 0;
  int max_height = 0;
  int max_width = 0;
};

// Puts the image at a uniform place of a canvas of uniform size. Without a colour the canvas has
// the image's mean.
void PadRandomly(const PadSizes& sizes, const std::optional<std::array<float, 3>>& colour,
                 CounterRandom* random, EditableImage* image, std::vector<Box>* boxes);

std::unique_ptr<AugmentationStep> MakeRandomPadImage(
    const PadSizes& sizes, const std::optional<std::array<float, 3>>& colour);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_GEOMETRY_STEPS_H_
