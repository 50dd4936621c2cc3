// Computes Pascal VOC's average precision (AP) at an IoU of 0.5, as the TensorFlow Object Detection
// API does for pascal_voc_detection_metrics:
//   - Detections without extent (ymin >= ymax or xmin >= xmax) are dropped.
//   - Detections are considered in descending order of their scores. Each is compared with the box
//     of its class with which it has the largest IoU. If that IoU is below 0.5, the detection is a
//     false positive. If the box is difficult, the detection is ignored. If an earlier detection
//     has matched the box, the detection is a false positive, even if its IoU with another box is
//     0.5 or more. Otherwise it is a true positive.
//   - AP is the area under the precision-recall curve at every recall that occurs, with the
//     precision made monotone from the right (VOC 2010 and later; not the 11 points of 2007).
//   - mAP is the mean over the classes that have boxes which are not difficult. The AP of other
//     classes is NaN. The mAP is NaN if there are no such boxes at all.
// Detections with equal scores keep the order in which they were added. Crowd boxes are treated as
// ordinary boxes.
//
// Tags: PascalBoxes_Precision/mAP@0.5IOU, PascalBoxes_PerformanceByCategory/AP@0.5IOU/<name>.
// Memory: 8 bytes per detection.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_VOC_METRICS_H_
#define PUSHPULL_WORKER_EVAL_METRICS_VOC_METRICS_H_

#include <cstdint>
#include <vector>

#include "worker/eval/metrics/average_precision.h"
#include "worker/eval/metrics/detection_metrics.h"

namespace pushpull {

class VocMetrics final : public DetectionMetrics {
 public:
  explicit VocMetrics(DetectionMetricsOptions options);

  absl::Status AddImage(const DetectionRecord& record) override;
  std::vector<MetricValue> Compute() const override;
  bool MustBeFound(const TruthBox& truth) const override { return !truth.difficult; }
  int64_t matches(int32_t label) const override;

 private:
  const DetectionMetricsOptions options_;
  std::vector<AveragePrecision> classes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_VOC_METRICS_H_
