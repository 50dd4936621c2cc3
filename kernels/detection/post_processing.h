// From a detector's raw outputs to boxes with scores. A pure function.
#ifndef PUSHPULL_KERNELS_DETECTION_POST_PROCESSING_H_
#define PUSHPULL_KERNELS_DETECTION_POST_PROCESSING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"

namespace pushpull {

struct Detection {
  BoundingBox box;    // within [0, 1], with an area
  int32_t label = 0;  // 0-based, without the background
  float score = 0.0f;
};

// One image: box_codes [A, 4], class_scores [A, num_classes + 1] with the background in column 0.
// Converts the scores (all columns divided by logit_scale first), decodes the boxes, suppresses
// class by class (score above score_threshold, IoU, max_detections_per_class; on boxes as decoded),
// merges the classes by falling score (the lower class first among equals), clips to `window` (the
// part of the input that the picture covers), drops boxes without area, and keeps
// max_total_detections. The result is in shares of the window. Boxes or scores that are not finite
// are never detections.
std::vector<Detection> PostProcess(const DetectionSpec& spec, absl::Span<const BoundingBox> anchors,
                                   absl::Span<const float> box_codes,
                                   absl::Span<const float> class_scores,
                                   const BoundingBox& window = {0.0f, 0.0f, 1.0f, 1.0f});

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_POST_PROCESSING_H_
