// Non-maximum suppression: greedily drops boxes that overlap a box with a better score. A pure
// function.
#ifndef PUSHPULL_KERNELS_DETECTION_NON_MAX_SUPPRESSION_H_
#define PUSHPULL_KERNELS_DETECTION_NON_MAX_SUPPRESSION_H_

#include <limits>
#include <vector>

#include "absl/types/span.h"

#include "kernels/detection/bounding_box.h"

namespace pushpull {

struct SuppressionOptions {
  float iou_threshold = 0.6f;  // a box is dropped if its IoU with a kept box is larger
  int max_boxes = 100;         // the most boxes that are kept
  float score_threshold = -std::numeric_limits<float>::infinity();  // a score must be larger
};

// Returns the indices of the kept boxes, best score first and the lower index first among equals.
// There must be one score per box (CHECK). A box whose score is NaN is not kept.
std::vector<int> SuppressNonMaxima(absl::Span<const BoundingBox> boxes,
                                   absl::Span<const float> scores,
                                   const SuppressionOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_NON_MAX_SUPPRESSION_H_
