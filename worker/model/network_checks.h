// Whether a network's graph is one that Network can run.
#ifndef PUSHPULL_WORKER_MODEL_NETWORK_CHECKS_H_
#define PUSHPULL_WORKER_MODEL_NETWORK_CHECKS_H_

#include "absl/status/status.h"

#include "common/model/network_spec.h"

namespace pushpull {

// What the passes take for granted. INVALID_ARGUMENT names the layer that breaks it. Pure function.
absl::Status CheckGraph(const NetworkSpec& spec);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_NETWORK_CHECKS_H_
