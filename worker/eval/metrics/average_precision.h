// The average precision (AP) at an IoU of 0.5 of one class, and the matching that it is computed
// from. VocMetrics and OpenImagesMetrics share these parts; each adds its own rules about boxes
// that do not count.
//
// Thread rule: not thread-safe.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_AVERAGE_PRECISION_H_
#define PUSHPULL_WORKER_EVAL_METRICS_AVERAGE_PRECISION_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

#include "worker/eval/metrics/detection_metrics.h"

namespace pushpull {

// The least overlap of a match: of an IoU, or of an intersection over the detection's area.
inline constexpr double kMatchingOverlap = 0.5;

// Collects the detections of one class over all images. Memory: 8 bytes per detection.
class AveragePrecision {
 public:
  // Adds a box that must be found.
  void AddTruth() { ++truth_; }
  // Adds a detection that is a true positive if `correct`, and a false positive otherwise.
  void AddDetection(float score, bool correct) { detections_.push_back({score, correct}); }

  // Returns the area under the precision-recall curve at every recall that occurs, with the
  // precision made monotone from the right. Detections with equal scores keep their order. NaN if
  // no box must be found.
  double Compute() const;
  // Returns the number of true positives.
  int64_t matches() const;

 private:
  struct Detection {
    float score;
    bool correct;
  };
  std::vector<Detection> detections_;
  int64_t truth_ = 0;
};

// The boxes of one class in one image. The pointers lead into the record.
struct ClassBoxes {
  std::vector<const TruthBox*> truth;
  std::vector<const DetectedBox*> detections;  // in descending order of their scores
};

// Returns the boxes of each class, by label. Leaves out detections without extent (ymin >= ymax or
// xmin >= xmax).
std::map<int32_t, ClassBoxes> BoxesByClass(const DetectionRecord& record);

// Returns the index of the box with which the detection has the largest IoU, the first of equal
// ones. nullopt if that IoU is below kMatchingOverlap.
std::optional<size_t> FindMatch(const DetectedBox& detection,
                                const std::vector<const TruthBox*>& truth);

// Returns <prefix>_Precision/mAP@0.5IOU, the mean over the classes whose AP is not NaN, which is
// NaN without such classes. With options.per_category, the AP of each class follows as
// <prefix>_PerformanceByCategory/AP@0.5IOU/<name>.
std::vector<MetricValue> AveragePrecisionValues(absl::string_view prefix,
                                                const std::vector<AveragePrecision>& classes,
                                                const DetectionMetricsOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_AVERAGE_PRECISION_H_
