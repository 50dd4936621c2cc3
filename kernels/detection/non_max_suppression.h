// Greedy suppression of boxes that overlap a better one. A pure function.
#ifndef PUSHPULL_KERNELS_DETECTION_NON_MAX_SUPPRESSION_H_
#define PUSHPULL_KERNELS_DETECTION_NON_MAX_SUPPRESSION_H_

#include <limits>
#include <vector>

#include "absl/types/span.h"

#include "kernels/detection/bounding_box.h"

namespace pushpull {

struct SuppressionOptions {
  float iou_threshold = 0.6f;  // a box goes when its IoU with a kept one is larger
  int max_boxes = 100;
  float score_threshold = -std::numeric_limits<float>::infinity();  // a box needs a larger score
};

// Indices of the boxes kept, best score first, the lower index first among equals. One score per
// box; a box whose score is NaN is not kept.
std::vector<int> SuppressNonMaxima(absl::Span<const BoundingBox> boxes,
                                   absl::Span<const float> scores,
                                   const SuppressionOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_NON_MAX_SUPPRESSION_H_
