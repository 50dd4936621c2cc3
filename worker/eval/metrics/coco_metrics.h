// Computes COCO's box metrics, with the same values as pycocotools' COCOeval (iouType "bbox"):
//   - There are 10 IoU thresholds, 0.50:0.05:0.95. The precision is made monotone and read at 101
//     recalls, 0:0.01:1.
//   - Per image and class, only the 1, 10 or 100 detections with the highest scores count.
//   - Metrics are computed for four ranges of area in square pixels: all, small (up to 32^2),
//     medium (32^2 to 96^2) and large (from 96^2). An area on a limit belongs to both ranges.
//     Ground truth outside the range is ignored. A detection is ignored if it matches ignored
//     ground truth, or if it matches nothing and is itself outside the range.
//   - Crowd boxes are ignored ground truth that any number of detections may match. Their overlap
//     with a detection is divided by the detection's area, not by the union. Boxes marked as
//     difficult are treated as ordinary boxes.
//   - A mean over no values (no class has ground truth in the range) is -1.
// Detections with equal scores keep the order in which they were added.
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

  // The bit of a range of areas and a threshold in the masks of a Detection.
  static constexpr uint64_t Bit(int area, int threshold) {
    return uint64_t{1} << (area * kThresholds + threshold);
  }
  // If neither mask has the bit of a range and threshold, the detection is ignored there.
  struct Detection {
    uint64_t true_positive = 0;
    uint64_t false_positive = 0;
    float score = 0;
    int32_t rank = 0;  // by score among the detections of its image and class, from 0
  };
  struct ClassState {
    std::vector<Detection> detections;
    std::array<int64_t, kAreas> truth{};  // number of boxes that must be found
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

  // Matches the boxes of one class in one image, and adds the detections to the class.
  static void AddClass(Boxes boxes, ClassState* state);
  // Computes average precision and recall from the `max_rank` detections with the highest scores of
  // each image. `sorted` holds the detections of one class by descending score; `truth` is the
  // number of boxes that must be found, above 0.
  static Point Evaluate(const std::vector<Detection>& sorted, int64_t truth, int area,
                        int threshold, int max_rank);

  const DetectionMetricsOptions options_;
  std::vector<ClassState> classes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_COCO_METRICS_H_
