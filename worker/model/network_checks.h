// Checks that Network can run a network's graph.
#ifndef PUSHPULL_WORKER_MODEL_NETWORK_CHECKS_H_
#define PUSHPULL_WORKER_MODEL_NETWORK_CHECKS_H_

#include "absl/status/status.h"

#include "common/model/network_spec.h"

namespace pushpull {

// Checks everything that the forward and backward pass rely on: the order and shapes of layers,
// residual links, dropout, outputs. INVALID_ARGUMENT: the message names the layer at fault. Pure
// function.
absl::Status CheckGraph(const NetworkSpec& spec);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_NETWORK_CHECKS_H_
