// Explains an mAP: counts the boxes, detections and matches of each class and, if the mAP is 0 or
// undefined, gives the likely reason.
//
// Thread rule: not thread-safe. Memory use does not grow with the number of images.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_METRICS_EXPLANATION_H_
#define PUSHPULL_WORKER_EVAL_METRICS_METRICS_EXPLANATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/eval/metrics/detection_metrics.h"

namespace pushpull {

struct ClassCounts {
  int64_t ground_truth = 0;  // boxes that must be found (DetectionMetrics::MustBeFound)
  int64_t ignored = 0;       // boxes that need not be found: difficult, crowd or group
  int64_t detections = 0;
  int64_t matches = 0;  // true positives at an IoU of 0.5
};

class MetricsExplanation {
 public:
  // The caller adds the same images to `metrics`, which must outlive this object.
  MetricsExplanation(const DetectionMetrics* metrics, std::vector<std::string> class_names);

  // Adds a record that `metrics` has accepted.
  void AddImage(const DetectionRecord& record);

  std::vector<ClassCounts> Counts() const;  // one per class

  // Returns a table of the counts: one line for each class with boxes or detections, then the sums.
  std::string Table() const;

  // Returns one sentence that says why the mAP is 0 or undefined and what to check.
  // `mean_precision` is the first value that `metrics` computes for the same images; NaN or a
  // negative number means that it is undefined. Returns an empty string if it is above 0.
  std::string Explain(double mean_precision) const;

 private:
  const DetectionMetrics* const metrics_;
  const std::vector<std::string> class_names_;
  std::vector<ClassCounts> counts_;  // `matches` stays 0; Counts fills it in
  int64_t images_ = 0;
  int64_t other_class_ = 0;  // boxes that must be found and only another class's detection covers
  double best_iou_ = 0;  // largest IoU of a box that must be found with a detection of its class
  float largest_truth_ = 0;      // largest absolute value of an edge of a ground truth box
  float largest_detection_ = 0;  // the same for detections
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_METRICS_EXPLANATION_H_
