// From the pixels of a picture to the numbers of a network's input: the formulas that the host's
// preprocessor and the devices' operator have in common, to the last bit.
#ifndef PUSHPULL_KERNELS_PICTURE_MATH_H_
#define PUSHPULL_KERNELS_PICTURE_MATH_H_

#include <cstdint>

#include "kernels/host_device.h"

namespace pushpull {

// A value of 0 to 255 as a network reads it, in [-1, 1].
PUSHPULL_HOST_DEVICE inline float NormalizedPixel(float value) {
  return value * (2.0f / 255.0f) - 1.0f;
}

PUSHPULL_HOST_DEVICE inline float GreyOf(float red, float green, float blue) {
  return 0.2989f * red + 0.5870f * green + 0.1140f * blue;
}

// The two neighbours along one axis that a resized pixel lies between, and the weight of the
// second.
struct ResizeTap {
  int32_t low;
  int32_t high;
  float weight;
};

// Of pixel `i` of `out_size` made from `in_size`, bilinear as TensorFlow 1 does it (align_corners =
// false, no half-pixel centres).
PUSHPULL_HOST_DEVICE inline ResizeTap ResizeTapOf(int32_t i, int32_t in_size, int32_t out_size) {
  const float scale = static_cast<float>(in_size) / static_cast<float>(out_size);
  const float source = static_cast<float>(i) * scale;
  // What is cut off is what floor takes away: nothing here is negative.
  const int32_t whole = static_cast<int32_t>(source);
  ResizeTap tap;
  tap.low = whole < in_size - 1 ? whole : in_size - 1;
  tap.high = tap.low + 1 < in_size ? tap.low + 1 : in_size - 1;
  tap.weight = source - static_cast<float>(tap.low);
  return tap;
}

PUSHPULL_HOST_DEVICE inline float Between(float low, float high, float weight) {
  return low + (high - low) * weight;
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_PICTURE_MATH_H_
