// Accumulates images one by one and computes detection metrics under TensorFlow's tag names.
// Implementations: voc_metrics.h, coco_metrics.h.
//
// Thread rule: one thread at a time. Memory grows by a few bytes per detection, never by images.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_DETECTION_METRICS_H_
#define PUSHPULL_WORKER_EVAL_METRICS_DETECTION_METRICS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

struct MetricValue {
  std::string tag;
  double value = 0;
};

struct DetectionMetricsOptions {
  std::vector<std::string> class_names;  // one per class: their number is the number of classes
  bool per_category = true;              // one value per class after the summary
};

class DetectionMetrics {
 public:
  virtual ~DetectionMetrics() = default;

  // Each image once. INVALID_ARGUMENT as CheckRecord, and nothing of the image is counted.
  virtual absl::Status AddImage(const DetectionRecord& record) = 0;

  // Over all images so far, always the same tags in the same order; the first is the mAP. May be
  // called between images.
  virtual std::vector<MetricValue> Compute() const = 0;

  // Whether a detector that misses this box has lower recall.
  virtual bool MustBeFound(const TruthBox& truth) const = 0;

  // True positives at an IoU of 0.5, of any score. 0 <= label < number of classes.
  virtual int64_t matches(int32_t label) const = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_DETECTION_METRICS_H_
