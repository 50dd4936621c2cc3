// The formulas that turn the pixels of an image into the numbers of a network's input. The host's
// preprocessor and the devices' operator share them and agree to the last bit. Pure functions.
#ifndef PUSHPULL_KERNELS_IMAGE_MATH_H_
#define PUSHPULL_KERNELS_IMAGE_MATH_H_

#include <cstdint>

#include "kernels/host_device.h"

namespace pushpull {

// Maps a value of 0 to 255 to [-1, 1], as networks read it.
PUSHPULL_HOST_DEVICE inline float NormalizedPixel(float value) {
  return value * (2.0f / 255.0f) - 1.0f;
}

// As TensorFlow's rgb_to_grayscale.
PUSHPULL_HOST_DEVICE inline float GreyOf(float red, float green, float blue) {
  return 0.2989f * red + 0.5870f * green + 0.1140f * blue;
}

// A resized pixel lies between two neighbours along each axis. `weight` is that of `high`, in
// [0, 1).
struct ResizeTap {
  int32_t low;
  int32_t high;
  float weight;
};

// The neighbours of pixel `i` of `out_size` pixels that are resized from `in_size` pixels.
// Bilinear as in TensorFlow 1: align_corners = false, no half-pixel centres.
PUSHPULL_HOST_DEVICE inline ResizeTap ResizeTapOf(int32_t i, int32_t in_size, int32_t out_size) {
  const float scale = static_cast<float>(in_size) / static_cast<float>(out_size);
  const float source = static_cast<float>(i) * scale;
  // Truncation is floor here, since nothing is negative.
  const int32_t whole = static_cast<int32_t>(source);
  ResizeTap tap;
  tap.low = whole < in_size - 1 ? whole : in_size - 1;
  tap.high = tap.low + 1 < in_size ? tap.low + 1 : in_size - 1;
  tap.weight = source - static_cast<float>(tap.low);
  return tap;
}

// Linear interpolation.
PUSHPULL_HOST_DEVICE inline float Between(float low, float high, float weight) {
  return low + (high - low) * weight;
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_IMAGE_MATH_H_
