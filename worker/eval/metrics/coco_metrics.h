// COCO's box metrics, number by number as pycocotools' COCOeval (iouType "bbox") gives them:
//   - 10 IoU thresholds 0.50:0.05:0.95, precision made monotone and read at 101 recalls 0:0.01:1.
//   - Per image and class the best 1, 10 or 100 detections, by score.
//   - Areas in square pixels: all, small up to 32^2, medium 32^2 to 96^2, large from 96^2, the
//   edges
//     belonging to both sides. Ground truth outside is ignored, as are detections that match it or
//     that match nothing and lie outside themselves.
//   - Crowd boxes are ignored and may be matched many times; the overlap is taken over the
//     detection's own area. The difficult mark means nothing.
//   - A mean over nothing (no ground truth in that area) is -1.
// Equal scores keep the order in which they were added.
//
// Tags: DetectionBoxes_Precision/mAP, mAP@.50IOU, mAP@.75IOU, mAP (small|medium|large);
// DetectionBoxes_Recall/AR@1, AR@10, AR@100, AR@100 (small|medium|large); per class
// DetectionBoxes_PerformanceByCategory/mAP/<name>. Memory: 24 bytes per detection.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_COCO_METRICS_H_
#define PUSHPULL_WORKER_EVAL_METRICS_COCO_METRICS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "worker/eval/metrics/detection_metrics.h"

namespace pushpull {

class CocoMetrics final : public DetectionMetrics {
 public:
  explicit CocoMetrics(DetectionMetricsOptions options);

  absl::Status AddImage(const DetectionRecord& record) override;
  std::vector<MetricValue> Compute() const override;
  bool MustBeFound(const TruthBox& truth) const override { return !truth.is_crowd; }
  int64_t matches(int32_t label) const override;

 private:
  static constexpr int kAreas = 4;  // all, small, medium, large
  static constexpr int kThresholds = 10;

  // Bit area * kThresholds + threshold of both masks: true, false or, with neither, ignored.
  struct Detection {
    uint64_t true_positive = 0;
    uint64_t false_positive = 0;
    float score = 0;
    int32_t rank = 0;  // among the detections of its image and class
  };
  struct ClassState {
    std::vector<Detection> detections;
    std::array<int64_t, kAreas> truth{};  // boxes to be found
  };
  struct Point {
    double average_precision;
    double recall;
  };
  struct Boxes {
    std::vector<const TruthBox*> truth;
    std::vector<const DetectedBox*> detections;
  };
  class Summary;

  static void AddClass(Boxes boxes, ClassState* state);
  // `sorted` by score. At the first `max_rank` detections of each image.
  static Point Evaluate(const std::vector<Detection>& sorted, int64_t truth, int area,
                        int threshold, int max_rank);

  const DetectionMetricsOptions options_;
  std::vector<ClassState> classes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_COCO_METRICS_H_
