// Boxes as in TensorFlow's detection code, for the CPU and for a GPU. Plain values and pure
// functions.
#ifndef PUSHPULL_KERNELS_DETECTION_BOUNDING_BOX_H_
#define PUSHPULL_KERNELS_DETECTION_BOUNDING_BOX_H_

#include "kernels/host_device.h"

namespace pushpull {

// The edges are fractions of the image's height and width. Anchors and predictions may reach beyond
// [0, 1].
struct BoundingBox {
  float ymin = 0.0f;
  float xmin = 0.0f;
  float ymax = 0.0f;
  float xmax = 0.0f;

  PUSHPULL_HOST_DEVICE float height() const { return ymax - ymin; }
  PUSHPULL_HOST_DEVICE float width() const { return xmax - xmin; }
  PUSHPULL_HOST_DEVICE float area() const { return height() * width(); }
  bool operator==(const BoundingBox&) const = default;
};

// The length of the intersection of [a_min, a_max] and [b_min, b_max]; 0 if they do not meet. The
// comparisons are those of std::min and std::max, which determines the result for a NaN.
PUSHPULL_HOST_DEVICE inline float SharedLength(float a_min, float a_max, float b_min, float b_max) {
  const float length = (b_max < a_max ? b_max : a_max) - (a_min < b_min ? b_min : a_min);
  return length < 0.0f ? 0.0f : length;
}

PUSHPULL_HOST_DEVICE inline float IntersectionArea(const BoundingBox& a, const BoundingBox& b) {
  return SharedLength(a.ymin, a.ymax, b.ymin, b.ymax) *
         SharedLength(a.xmin, a.xmax, b.xmin, b.xmax);
}

// The area of the intersection divided by that of the union; 0 for boxes that do not meet.
PUSHPULL_HOST_DEVICE inline float IntersectionOverUnion(const BoundingBox& a,
                                                        const BoundingBox& b) {
  const float intersection = IntersectionArea(a, b);
  return intersection == 0.0f ? 0.0f : intersection / (a.area() + b.area() - intersection);
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_BOUNDING_BOX_H_
