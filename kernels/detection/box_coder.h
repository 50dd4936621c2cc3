// The box coding of Faster R-CNN (Ren et al., NIPS 2015, equation 2), with TensorFlow's scale
// factors. A box with centre (yc, xc), height h and width w is coded relative to an anchor with
// centre (yca, xca), height ha and width wa:
// clang-format off
//   code = [y_scale (yc - yca) / ha,
//           x_scale (xc - xca) / wa,
//           height_scale ln(h / ha),
//           width_scale ln(w / wa)]
// clang-format on
// Pure functions.
#ifndef PUSHPULL_KERNELS_DETECTION_BOX_CODER_H_
#define PUSHPULL_KERNELS_DETECTION_BOX_CODER_H_

#include <array>

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"

namespace pushpull {

using BoxCode = std::array<double, kBoxCodeSize>;

// Adds 1e-8 to all heights and widths, so that a box without area has a finite code.
BoxCode EncodeBox(const FasterRcnnBoxCoderSpec& spec, const BoundingBox& box,
                  const BoundingBox& anchor);

// The inverse of EncodeBox, but without the 1e-8. The box is infinite if the code exceeds the range
// of the exponential function.
BoundingBox DecodeBox(const FasterRcnnBoxCoderSpec& spec, const BoxCode& code,
                      const BoundingBox& anchor);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_BOX_CODER_H_
