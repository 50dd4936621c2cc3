// Turns the raw outputs of a detector into boxes with labels and scores. A pure function.
#ifndef PUSHPULL_KERNELS_DETECTION_POST_PROCESSING_H_
#define PUSHPULL_KERNELS_DETECTION_POST_PROCESSING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"

namespace pushpull {

struct Detection {
  BoundingBox box;    // within [0, 1], with a positive area
  int32_t label = 0;  // 0-based, without the background
  float score = 0.0f;
};

// Processes one image with A anchors: box_codes [A, 4], and class_scores [A, num_classes + 1] with
// the background in column 0. `window` is the part of the network's input that the image covers and
// must have a positive area.
// 1. Divides the scores by logit_scale, applies the score converter and decodes the boxes. Boxes or
//    scores that are not finite are dropped.
// 2. For each class, drops scores that are not above score_threshold and boxes that overlap a box
//    with a better score (iou_threshold), and keeps at most max_detections_per_class.
// 3. Clips the boxes to `window`, drops those without area, and rescales them to fractions of the
//    window.
// 4. Merges the classes by descending score, the lower class first among equals, and keeps the
//    first max_total_detections.
std::vector<Detection> PostProcess(const DetectionSpec& spec, absl::Span<const BoundingBox> anchors,
                                   absl::Span<const float> box_codes,
                                   absl::Span<const float> class_scores,
                                   const BoundingBox& window = {0.0f, 0.0f, 1.0f, 1.0f});

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_POST_PROCESSING_H_
