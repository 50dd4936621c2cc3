// Augmentation steps that move pixels but remove none: flips, rotation and padding.
//
// Thread rule: functions without shared state; the steps they make are thread-safe.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_GEOMETRY_STEPS_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_GEOMETRY_STEPS_H_

#include <array>
#include <memory>
#include <optional>

#include "worker/data/augment/augmentation_step.h"

namespace pushpull {

// These three steps change an image with this probability, from 0 to 1. Each draws one word,
// whatever the probability.
std::unique_ptr<AugmentationStep> MakeRandomHorizontalFlip(float probability);  // left and right
std::unique_ptr<AugmentationStep> MakeRandomVerticalFlip(float probability);    // top and bottom
std::unique_ptr<AugmentationStep> MakeRandomRotation90(float probability);      // counter-clockwise

// The range of sizes of a padded image in pixels; both ends are included. A minimum of 0 means the
// size of the image, a maximum of 0 means twice that size. A padded image is never smaller than the
// image.
struct PadSizes {
  int min_height = 0;
  int min_width = 0;
  int max_height = 0;
  int max_width = 0;
};

// Enlarges the image to a size drawn uniformly from `sizes`, with the old image at a uniformly
// drawn position, and adapts the boxes. The new pixels have `colour` (0..255), or the image's mean
// if there is none.
void PadRandomly(const PadSizes& sizes, const std::optional<std::array<float, 3>>& colour,
                 CounterRandom* random, EditableImage* image, std::vector<Box>* boxes);

// Makes a step that calls PadRandomly.
std::unique_ptr<AugmentationStep> MakeRandomPadImage(
    const PadSizes& sizes, const std::optional<std::array<float, 3>>& colour);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_GEOMETRY_STEPS_H_
