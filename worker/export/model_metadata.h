// Builds the metadata that an exported file contains about its model. Thread-safe.
#ifndef PUSHPULL_WORKER_EXPORT_MODEL_METADATA_H_
#define PUSHPULL_WORKER_EXPORT_MODEL_METADATA_H_

#include <map>
#include <string>

#include "worker/export/inference_model.h"

namespace pushpull {

// Returns the entries "model", "step", "weights" ("raw" or "ema"), "run_id", "num_classes", "input"
// (the shape of the network's input as "HxWxC") and "preprocessing".
std::map<std::string, std::string> DescribeModel(const InferenceModel& model);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_MODEL_METADATA_H_
