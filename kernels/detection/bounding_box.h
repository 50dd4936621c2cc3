// Boxes as TensorFlow's detection code has them. Plain values.
#ifndef PUSHPULL_KERNELS_DETECTION_BOUNDING_BOX_H_
#define PUSHPULL_KERNELS_DETECTION_BOUNDING_BOX_H_

#include <algorithm>

namespace pushpull {

// Edges as shares of the image's height and width. An anchor or a prediction may reach beyond
// [0, 1].
struct BoundingBox {
  float ymin = 0.0f;
  float xmin = 0.0f;
  float ymax = 0.0f;
  float xmax = 0.0f;

  float height() const { return ymax - ymin; }
  float width() const { return xmax - xmin; }
  float area() const { return height() * width(); }
  bool operator==(const BoundingBox&) const = default;
};

inline float IntersectionArea(const BoundingBox& a, const BoundingBox& b) {
  const float height = std::min(a.ymax, b.ymax) - std::max(a.ymin, b.ymin);
  const float width = std::min(a.xmax, b.xmax) - std::max(a.xmin, b.xmin);
  return std::max(height, 0.0f) * std::max(width, 0.0f);
}

// 0 for boxes that do not meet.
inline float IntersectionOverUnion(const BoundingBox& a, const BoundingBox& b) {
  const float intersection = IntersectionArea(a, b);
  return intersection == 0.0f ? 0.0f : intersection / (a.area() + b.area() - intersection);
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_BOUNDING_BOX_H_
