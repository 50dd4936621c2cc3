// Augmentation steps that change colours and leave boxes alone.
//
// The steps, except random RGB to grey, work on values scaled to [0, 1] and clip the result to that
// range. Steps for hue, saturation and grey do not change images with one channel.
//
// Thread rule: functions without shared state; the steps they make are thread-safe.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_COLOUR_STEPS_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_COLOUR_STEPS_H_

#include <memory>

#include "worker/data/augment/augmentation_step.h"

namespace pushpull {

// The functions below change all values of an image in place: [height, width, channels] with values
// in [0, 1]. `rgb` has 3 channels. Values are not clipped afterwards.

// Adds `delta` to every value.
void AdjustBrightness(float delta, std::vector<float>* values);
// Replaces every value x by (x - mean) * factor + mean, where `mean` is the mean of its channel.
void AdjustContrast(float factor, int channels, std::vector<float>* values);
// Adds `delta` to the hue of HSV; 1 is a full circle.
void AdjustHue(float delta, std::vector<float>* rgb);
// Multiplies the saturation of HSV by `factor` and limits it to [0, 1].
void AdjustSaturation(float factor, std::vector<float>* rgb);
// Sets all three channels to 0.2989 R + 0.5870 G + 0.1140 B. Values may have any range.
void MakeGrey(std::vector<float>* rgb);

// The steps below draw their deltas and factors uniformly from the given range; a delta is drawn
// from [-max_delta, max_delta].

std::unique_ptr<AugmentationStep> MakeRandomAdjustBrightness(float max_delta);
std::unique_ptr<AugmentationStep> MakeRandomAdjustContrast(float min_factor, float max_factor);
std::unique_ptr<AugmentationStep> MakeRandomAdjustHue(float max_delta);
std::unique_ptr<AugmentationStep> MakeRandomAdjustSaturation(float min_factor, float max_factor);
// Changes brightness (delta at most 32/255), saturation and contrast (factors 0.5 to 1.5) and hue
// (delta at most 0.2). Order 0: brightness, saturation, hue, contrast. Order 1: brightness,
// contrast, saturation, hue.
std::unique_ptr<AugmentationStep> MakeRandomDistortColor(int order);
// Multiplies each value of the image by a separately drawn factor.
std::unique_ptr<AugmentationStep> MakeRandomPixelValueScale(float min_factor, float max_factor);
// Makes the image grey with the given probability; it keeps three channels.
std::unique_ptr<AugmentationStep> MakeRandomRgbToGray(float probability);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_COLOUR_STEPS_H_
