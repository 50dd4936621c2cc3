// Computes the Open Images V2 detection metric, as the TensorFlow Object Detection API does for
// oid_V2_detection_metrics: Pascal VOC's average precision at an IoU of 0.5 (voc_metrics.h) with
// these differences:
//   - A group box (image/object/group_of, one box around several objects) need not be found, and
//     detections are first matched with all other boxes as if it were not there.
//   - A detection that this makes a false positive is ignored if at least half of its area lies in
//     one group box of its class.
//   - Difficult boxes are treated as ordinary boxes. So are crowd boxes.
//
// Tags: OpenImagesV2_Precision/mAP@0.5IOU, OpenImagesV2_PerformanceByCategory/AP@0.5IOU/<name>.
// Memory: 8 bytes per detection.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_OPEN_IMAGES_METRICS_H_
#define PUSHPULL_WORKER_EVAL_METRICS_OPEN_IMAGES_METRICS_H_

#include <cstdint>
#include <vector>

#include "worker/eval/metrics/average_precision.h"
#include "worker/eval/metrics/detection_metrics.h"

namespace pushpull {

class OpenImagesMetrics final : public DetectionMetrics {
 public:
  explicit OpenImagesMetrics(DetectionMetricsOptions options);

  absl::Status AddImage(const DetectionRecord& record) override;
  std::vector<MetricValue> Compute() const override;
  bool MustBeFound(const TruthBox& truth) const override { return !truth.is_group_of; }
  int64_t matches(int32_t label) const override;

 private:
  const DetectionMetricsOptions options_;
  std::vector<AveragePrecision> classes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_OPEN_IMAGES_METRICS_H_
