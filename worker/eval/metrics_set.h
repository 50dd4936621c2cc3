// Makes the detection metrics that eval_config.metrics_set names.
//
// Thread rule: a function without shared state.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_SET_H_
#define PUSHPULL_WORKER_EVAL_METRICS_SET_H_

#include <memory>
#include <string>
#include <vector>

#include "protos/pipeline.pb.h"
#include "worker/eval/metrics/detection_metrics.h"

namespace pushpull {

// Returns the metrics in the order of their names, each once; those of Pascal VOC if there are no
// names. `config` must be a part of a valid config.
std::vector<std::unique_ptr<DetectionMetrics>> MakeMetricsSet(
    const config::EvalConfig& config, const std::vector<std::string>& class_names);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_SET_H_
