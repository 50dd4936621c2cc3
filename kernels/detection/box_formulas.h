// The formulas of kernels/detection/box_coder.h on plain arrays, for the CPU and for a GPU. Pure
// functions, computed in double.
#ifndef PUSHPULL_KERNELS_DETECTION_BOX_FORMULAS_H_
#define PUSHPULL_KERNELS_DETECTION_BOX_FORMULAS_H_

#include <cmath>

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"
#include "kernels/host_device.h"

namespace pushpull {

// A box by its centre and size, in double.
struct CenteredBox {
  double center_y, center_x, height, width;
};

PUSHPULL_HOST_DEVICE inline CenteredBox Centered(const BoundingBox& box) {
  return {0.5 * (double{box.ymin} + box.ymax), 0.5 * (double{box.xmin} + box.xmax),
          double{box.ymax} - box.ymin, double{box.xmax} - box.xmin};
}

// code has kBoxCodeSize entries.
PUSHPULL_HOST_DEVICE inline void EncodeBoxInto(const FasterRcnnBoxCoderSpec& spec,
                                               const BoundingBox& box, const BoundingBox& anchor,
                                               double* code) {
  constexpr double kEpsilon = 1e-8;
  const CenteredBox b = Centered(box), a = Centered(anchor);
  const double anchor_height = a.height + kEpsilon;
  const double anchor_width = a.width + kEpsilon;
  code[0] = spec.y_scale * (b.center_y - a.center_y) / anchor_height;
  code[1] = spec.x_scale * (b.center_x - a.center_x) / anchor_width;
  code[2] = spec.height_scale * log((b.height + kEpsilon) / anchor_height);
  code[3] = spec.width_scale * log((b.width + kEpsilon) / anchor_width);
}

PUSHPULL_HOST_DEVICE inline BoundingBox DecodeBoxFrom(const FasterRcnnBoxCoderSpec& spec,
                                                      const double* code,
                                                      const BoundingBox& anchor) {
  const CenteredBox a = Centered(anchor);
  const double center_y = code[0] / spec.y_scale * a.height + a.center_y;
  const double center_x = code[1] / spec.x_scale * a.width + a.center_x;
  const double half_height = 0.5 * exp(code[2] / spec.height_scale) * a.height;
  const double half_width = 0.5 * exp(code[3] / spec.width_scale) * a.width;
  return {static_cast<float>(center_y - half_height), static_cast<float>(center_x - half_width),
          static_cast<float>(center_y + half_height), static_cast<float>(center_x + half_width)};
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_BOX_FORMULAS_H_
