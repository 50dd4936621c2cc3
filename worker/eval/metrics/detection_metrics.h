// Accumulates the detections of images and computes detection metrics with TensorFlow's tags. The
// implementations are in voc_metrics.h, coco_metrics.h and open_images_metrics.h.
//
// Thread rule: not thread-safe. Memory grows by a few bytes per detection; images are not kept.
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
  std::vector<std::string> class_names;  // one per class; the size is the number of classes
  bool per_category = true;              // Compute also returns one value per class
};

class DetectionMetrics {
 public:
  virtual ~DetectionMetrics() = default;

  // Adds an image; call once per image. INVALID_ARGUMENT: as CheckRecord; the image then does not
  // count at all.
  virtual absl::Status AddImage(const DetectionRecord& record) = 0;

  // Computes the metrics of all images added so far; more images may be added afterwards. Always
  // returns the same tags in the same order: the mAP first, the classes last.
  virtual std::vector<MetricValue> Compute() const = 0;

  // Returns whether missing this box lowers the recall.
  virtual bool MustBeFound(const TruthBox& truth) const = 0;

  // Returns the number of true positives of a class at an IoU threshold of 0.5, whatever their
  // score. 0 <= label < number of classes.
  virtual int64_t matches(int32_t label) const = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_DETECTION_METRICS_H_
