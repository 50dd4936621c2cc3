// A NetworkRunner on the CPU. The network reads variables and writes gradients in the caller's
// vectors without copies.
#ifndef PUSHPULL_WORKER_MODEL_HOST_RUNNER_H_
#define PUSHPULL_WORKER_MODEL_HOST_RUNNER_H_

#include <memory>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/model/variable_layout.h"
#include "kernels/operators.h"
#include "worker/model/network_runner.h"

namespace pushpull {

// Builds a runner. T is the type of activations: float, double or Bfloat16, for which images are
// rounded and outputs widened. `operators` must work on host memory and outlive the runner. Errors
// as CheckBatch and Network::Create. The runner's steps block until they are computed.
template <typename T>
absl::StatusOr<std::unique_ptr<BasicNetworkRunner<ParameterOf<T>>>> MakeHostRunner(
    const NetworkSpec& spec, const VariableLayout& layout, Operators<T>* operators,
    const RunnerOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_HOST_RUNNER_H_
