// Steps that change colours and no boxes. All work on values scaled to [0, 1] and clip to that
// range; formulas in the .cc beside each. A grey image has no hue and no saturation: those steps
// leave it alone.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_COLOUR_STEPS_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_COLOUR_STEPS_H_

#include <memory>

#include "worker/data/augment/augmentation_step.h"

namespace pushpull {

// Of the whole image, x in [0, 1], three interleaved channels (or one, for the first two).
void AdjustBrightness(float delta, std::vector<float>* values);  // x + delta
// (x - mean of the channel) * factor + mean of the channel.
void AdjustContrast(float factor, int channels, std::vector<float>* values);
// Turns the hue by `delta` of a full circle.
void AdjustHue(float delta, std::vector<float>* rgb);
// Multiplies the saturation of HSV.
void AdjustSaturation(float factor, std::vector<float>* rgb);
// 0.2989 R + 0.5870 G + 0.1140 B in all three channels.
void MakeGrey(std::vector<float>* rgb);

std::unique_ptr<AugmentationStep> MakeRandomAdjustBrightness(float max_delta);
std::unique_ptr<AugmentationStep> MakeRandomAdjustContrast(float min_factor, float max_factor);
std::unique_ptr<AugmentationStep> MakeRandomAdjustHue(float max_delta);
std::unique_ptr<AugmentationStep> MakeRandomAdjustSaturation(float min_factor, float max_factor);
// Brightness by 32/255, saturation by 0.5 to 1.5, hue by 0.2, contrast by 0.5 to 1.5 (order 0) or
// brightness, contrast, saturation, hue (order 1).
std::unique_ptr<AugmentationStep> MakeRandomDistortColor(int order);
// Multiplies each value by a number of its own.
std::unique_ptr<AugmentationStep> MakeRandomPixelValueScale(float min_factor, float max_factor);
std::unique_ptr<AugmentationStep> MakeRandomRgbToGray(float probability);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_COLOUR_STEPS_H_
