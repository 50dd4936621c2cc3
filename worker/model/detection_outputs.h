// From the heads of a detector, one pair of layers per feature map, to lists with one entry per
// anchor. A pure function.
#ifndef PUSHPULL_WORKER_MODEL_DETECTION_OUTPUTS_H_
#define PUSHPULL_WORKER_MODEL_DETECTION_OUTPUTS_H_

#include <cstdint>

#include "absl/types/span.h"

#include "common/model/detection_spec.h"

namespace pushpull {

// With A = spec.num_anchors() and K = spec.num_classes + 1. `outputs` holds, head by head, the box
// codes [samples, H, W, anchors * 4] and the class scores [samples, H, W, anchors * K]; the lists
// are [samples, A, 4] and [samples, A, K].
void GatherDetectionOutputs(const DetectionSpec& spec, int64_t samples,
                            absl::Span<const float* const> outputs, float* box_codes,
                            float* class_scores);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_DETECTION_OUTPUTS_H_
