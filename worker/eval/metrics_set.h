// Measures detections by the metrics that eval_config.metrics_set names.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_SET_H_
#define PUSHPULL_WORKER_EVAL_METRICS_SET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "protos/pipeline.pb.h"
#include "worker/eval/evaluation.h"
#include "worker/eval/metrics/detection_metrics.h"
#include "worker/eval/metrics/metrics_explanation.h"

namespace pushpull {

// Not thread-safe.
class MetricsSet {
 public:
  // The metrics come in the order of their names, each once; those of Pascal VOC if there are no
  // names. `config` must be a part of a valid config.
  MetricsSet(const config::EvalConfig& config, const std::vector<std::string>& class_names);

  // Adds an image; call once per image. INVALID_ARGUMENT: as CheckRecord.
  absl::Status AddImage(const DetectionRecord& record);

  // Notes that the network's outputs for an image of AddImage were not all finite, so that
  // detections are missing from its record.
  void AddDivergedImage() { ++diverged_images_; }

  // Appends the values of all metrics to report->scalars, NaN for one that is undefined, and sets
  // report->explanation: why the model has diverged if it has, or else why the first value is 0 or
  // undefined.
  void Report(EvaluationReport* report) const;

 private:
  const std::vector<std::unique_ptr<DetectionMetrics>> metrics_;
  MetricsExplanation explanation_;  // of the first metric
  int64_t images_ = 0;
  int64_t diverged_images_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_SET_H_
