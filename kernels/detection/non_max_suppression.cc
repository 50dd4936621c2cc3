// Tested by tests/kernels/detection/detection_units_test.cc.
#include "kernels/detection/non_max_suppression.h"

#include <algorithm>
#include <cmath>

#include "absl/container/flat_hash_map.h"
#include "glog/logging.h"

namespace pushpull {
namespace {

// The kept boxes in buckets by the logarithm of their area. An IoU is at most the ratio of the
// smaller to the larger area, so only boxes of about the same area, which are in the same or a
// neighbouring bucket, have to be compared. Boxes without a positive, finite area overlap nothing.
class KeptBoxes {
 public:
  explicit KeptBoxes(float iou_threshold)
      : iou_threshold_(iou_threshold),
        // The factor 0.998 covers rounding. With a very small threshold boxes of nearly any area
        // may overlap; then all buckets are searched, and their width does not matter.
        bucket_width_(-std::log(std::clamp(0.998f * iou_threshold, 0.05f, 0.998f))),
        all_areas_(0.998f * iou_threshold < 0.05f) {}

  void Add(const BoundingBox& box) {
    const float area = box.area();
    if (IsUsable(area)) buckets_[Bucket(area)].push_back(box);
  }

  // Whether the IoU of `box` with any kept box is above the threshold.
  bool Overlap(const BoundingBox& box) const {
    const float area = box.area();
    if (!IsUsable(area)) return false;
    if (all_areas_) {
      return std::any_of(buckets_.begin(), buckets_.end(),
                         [&](const auto& bucket) { return OverlapOne(box, bucket.second); });
    }
    for (int bucket = Bucket(area) - 1, last = bucket + 2; bucket <= last; ++bucket) {
      const auto found = buckets_.find(bucket);
      if (found != buckets_.end() && OverlapOne(box, found->second)) return true;
    }
    return false;
  }

 private:
  static bool IsUsable(float area) { return area > 0.0f && std::isfinite(area); }
  int Bucket(float area) const {
    return static_cast<int>(std::floor(std::log(area) / bucket_width_));
  }
  bool OverlapOne(const BoundingBox& box, const std::vector<BoundingBox>& others) const {
    return std::any_of(others.begin(), others.end(), [&](const BoundingBox& other) {
      return IntersectionOverUnion(box, other) > iou_threshold_;
    });
  }

  const float iou_threshold_;
  const float bucket_width_;
  const bool all_areas_;
  absl::flat_hash_map<int, std::vector<BoundingBox>> buckets_;
};

}  // namespace

std::vector<int> SuppressNonMaxima(absl::Span<const BoundingBox> boxes,
                                   absl::Span<const float> scores,
                                   const SuppressionOptions& options) {
  CHECK_EQ(boxes.size(), scores.size());
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(boxes.size()); ++i) {
    if (scores[i] > options.score_threshold) order.push_back(i);
  }
  // The best candidate is taken from a heap, because usually few are needed. Of equal scores the
  // first comes first.
  const auto is_worse = [scores](int a, int b) {
    return scores[a] != scores[b] ? scores[a] < scores[b] : a > b;
  };
  std::make_heap(order.begin(), order.end(), is_worse);
  std::vector<int> kept;
  KeptBoxes neighbours(options.iou_threshold);
  while (!order.empty() && static_cast<int>(kept.size()) < options.max_boxes) {
    std::pop_heap(order.begin(), order.end(), is_worse);
    const int candidate = order.back();
    order.pop_back();
    const BoundingBox& box = boxes[candidate];
    if (neighbours.Overlap(box)) continue;
    kept.push_back(candidate);
    neighbours.Add(box);
  }
  return kept;
}

}  // namespace pushpull
