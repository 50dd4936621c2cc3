// Says what stands behind an mAP: how many boxes, detections and matches each class has and, where
// the mAP is 0 or undefined, what the likely reason is.
//
// Thread rule: one thread at a time. Memory does not grow with images.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_METRICS_EXPLANATION_H_
#define PUSHPULL_WORKER_EVAL_METRICS_METRICS_EXPLANATION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "worker/eval/metrics/detection_metrics.h"

namespace pushpull {

struct ClassCounts {
  int64_t ground_truth = 0;  // boxes that must be found
  int64_t ignored = 0;       // boxes that need not: difficult or crowd
  int64_t detections = 0;
  int64_t matches = 0;  // true positives at an IoU of 0.5
};

class MetricsExplanation {
 public:
  // `metrics` gets the same images and must outlive this object.
  MetricsExplanation(const DetectionMetrics* metrics, std::vector<std::string> class_names);

  // A record that the metrics accepted.
  void AddImage(const DetectionRecord& record);

  std::vector<ClassCounts> Counts() const;  // one per class

  // A line for each class that has anything, and one for the sum.
  std::string Table() const;

  // One sentence why the mAP is 0 or undefined and what to check; empty where it is above 0.
  std::string Explain() const;

 private:
  const DetectionMetrics* const metrics_;
  const std::vector<std::string> class_names_;
  std::vector<ClassCounts> counts_;  // without matches
  int64_t images_ = 0;
  int64_t other_class_ = 0;  // boxes to be found that only a detection of another class covers
  double best_iou_ = 0;      // of a detection with a box to be found of its class
  float largest_truth_ = 0;  // absolute value of an edge
  float largest_detection_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_METRICS_EXPLANATION_H_
