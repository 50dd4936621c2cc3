// Other programs trained some networks on other pixel values than ours: on
// (p - mean) / deviation for p in [0, 1], where ours read 2 p - 1. AdaptToOurPixels makes up for it
// in the first layer. Thread-safe.
#ifndef PUSHPULL_PS_SERVER_WARM_START_PIXEL_VALUES_H_
#define PUSHPULL_PS_SERVER_WARM_START_PIXEL_VALUES_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace pushpull {

// A number for each of red, green and blue.
struct PixelValues {
  std::array<double, 3> mean;
  std::array<double, 3> deviation;
};

// What torchvision documents for its ImageNet weights.
inline constexpr PixelValues kTorchvisionPixels = {{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};

// Pixels from 0 to 255 without the mean of each channel: of VGG and ResNet v1 in TensorFlow slim
// (preprocessing/vgg_preprocessing.py) and in the Object Detection API.
inline constexpr PixelValues kChannelMeanPixels = {{123.68 / 255, 116.779 / 255, 103.939 / 255},
                                                   {1.0 / 255, 1.0 / 255, 1.0 / 255}};

// Changes the weights [kernel, kernel, 3, outputs] of a network's first convolution, so that for
// pixels 2 p - 1 they give what they gave for `theirs` of the same image:
//
//     weights'[y, x, c, o] = weights[y, x, c, o] * 0.5 / deviation[c]
//
// Returns what is then missing in each output, which the caller adds to the biases of the
// convolution or subtracts from the moving means of the batch norm after it:
//
//     missing[o] = sum over y, x, c: weights[y, x, c, o] * (0.5 - mean[c]) / deviation[c]
//
// That is exact except where a window reaches beyond the image, because the padding is 0 for both.
std::vector<double> AdaptToOurPixels(const PixelValues& theirs, absl::Span<float> weights,
                                     size_t outputs);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_PIXEL_VALUES_H_
