// Tested by tests/worker/eval/detection_evaluation_test.cc.
#include "worker/model/detection_outputs.h"

#include <algorithm>

#include "glog/logging.h"

namespace pushpull {

void GatherDetectionOutputs(const DetectionSpec& spec, int64_t samples,
                            absl::Span<const float* const> outputs, float* box_codes,
                            float* class_scores) {
  CHECK_EQ(outputs.size(), 2 * spec.heads.size());
  const int64_t anchors = spec.num_anchors();
  const int64_t columns = spec.num_classes + 1;
  for (int64_t s = 0; s < samples; ++s) {
    int64_t first = s * anchors;
    for (size_t h = 0; h < spec.heads.size(); ++h) {
      const int64_t count = spec.heads[h].num_anchors();
      std::copy_n(outputs[2 * h] + s * count * kBoxCodeSize, count * kBoxCodeSize,
                  box_codes + first * kBoxCodeSize);
      std::copy_n(outputs[2 * h + 1] + s * count * columns, count * columns,
                  class_scores + first * columns);
      first += count;
    }
  }
}

}  // namespace pushpull
