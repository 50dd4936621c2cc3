// Faster R-CNN's box coding (Ren et al., NIPS 2015, equation 2), with TensorFlow's scale factors:
//   code = [y_scale (yc - yca) / ha, x_scale (xc - xca) / wa, height_scale ln(h / ha), width_scale
//           ln(w / wa)]
// where c is a centre and a the anchor. Pure functions.
#ifndef PUSHPULL_KERNELS_DETECTION_BOX_CODER_H_
#define PUSHPULL_KERNELS_DETECTION_BOX_CODER_H_

#include <array>

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"

namespace pushpull {

using BoxCode = std::array<double, kBoxCodeSize>;

// 1e-8 is added to all heights and widths, so a box without area gives a finite code.
BoxCode EncodeBox(const FasterRcnnBoxCoderSpec& spec, const BoundingBox& box,
                  const BoundingBox& anchor);

// The inverse, without the 1e-8. Infinite for codes beyond the exponential's range.
BoundingBox DecodeBox(const FasterRcnnBoxCoderSpec& spec, const BoxCode& code,
                      const BoundingBox& anchor);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_BOX_CODER_H_
