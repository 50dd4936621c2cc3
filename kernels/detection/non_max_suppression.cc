#include "kernels/detection/non_max_suppression.h"

#include <algorithm>

#include "glog/logging.h"

namespace pushpull {

std::vector<int> SuppressNonMaxima(absl::Span<const BoundingBox> boxes,
                                   absl::Span<const float> scores,
                                   const SuppressionOptions& options) {
  CHECK_EQ(boxes.size(), scores.size());
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(boxes.size()); ++i) {
    if (scores[i] > options.score_threshold) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [scores](int a, int b) { return scores[a] > scores[b]; });
  std::vector<int> kept;
  std::vector<float> areas;  // of the kept
  for (const int candidate : order) {
    if (static_cast<int>(kept.size()) >= options.max_boxes) break;
    const BoundingBox& box = boxes[candidate];
    const float area = box.area();
    // The IoU is at most the ratio of the areas, which is cheaper; the slack covers rounding.
    const float smallest = area * options.iou_threshold * 0.999f;
    bool suppressed = false;
    for (size_t k = 0; k < kept.size() && !suppressed; ++k) {
      if (areas[k] < smallest || areas[k] * options.iou_threshold * 0.999f > area) continue;
      suppressed = IntersectionOverUnion(box, boxes[kept[k]]) > options.iou_threshold;
    }
    if (suppressed) continue;
    kept.push_back(candidate);
    areas.push_back(area);
  }
  return kept;
}

}  // namespace pushpull
