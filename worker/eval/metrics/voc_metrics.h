// Pascal VOC average precision at an IoU of 0.5, as TensorFlow's object detection API computes it
// under pascal_voc_detection_metrics:
//   - Detections without extent (ymin >= ymax or xmin >= xmax) are dropped.
//   - In the order of their scores, each detection is compared with the one box of its class that
//     it overlaps most. Below 0.5: false. Difficult: the detection is ignored. Claimed by an
//     earlier detection: false, even where another box overlaps by 0.5 too. Else true.
//   - AP is the area under the precision made monotone from the right, at every recall that occurs
//     (VOC 2010 and later; not the 11 points of 2007).
//   - mAP is the mean over the classes that have boxes which are not difficult. The others are NaN,
//     as the mAP is where there are none at all.
// Equal scores keep the order in which they were added. Crowd boxes are boxes like others.
//
// Tags: PascalBoxes_Precision/mAP@0.5IOU, PascalBoxes_PerformanceByCategory/AP@0.5IOU/<name>.
// Memory: 8 bytes per detection.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_VOC_METRICS_H_
#define PUSHPULL_WORKER_EVAL_METRICS_VOC_METRICS_H_

#include <cstdint>
#include <vector>

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
  struct Detection {
    float score;
    bool correct;
  };
  struct ClassState {
    std::vector<Detection> detections;
    int64_t truth = 0;  // boxes to be found
  };

  void AddClass(std::vector<const TruthBox*> truth, std::vector<const DetectedBox*> detections,
                ClassState* state);

  const DetectionMetricsOptions options_;
  std::vector<ClassState> classes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_VOC_METRICS_H_
