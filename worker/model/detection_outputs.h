// Joins the outputs of a detector's heads into lists with one entry per anchor. A head is a pair
// of layers that reads one feature map. Pure function.
#ifndef PUSHPULL_WORKER_MODEL_DETECTION_OUTPUTS_H_
#define PUSHPULL_WORKER_MODEL_DETECTION_OUTPUTS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"

namespace pushpull {

// Let A = spec.num_anchors() and K = spec.num_classes + 1. `outputs` holds two pointers per head:
// the box codes [samples, H, W, anchors * 4] and the class scores [samples, H, W, anchors * K].
// Writes box_codes [samples, A, 4] and class_scores [samples, A, K], both in the order of the
// heads. The caller owns all memory.
void GatherDetectionOutputs(const DetectionSpec& spec, int64_t samples,
                            absl::Span<const float* const> outputs, float* box_codes,
                            float* class_scores);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_DETECTION_OUTPUTS_H_
