// A network on a GPU (kernels/device.h): copies the caller's vectors there and the gradient back,
// piece by piece while backward goes on.
#ifndef PUSHPULL_WORKER_MODEL_DEVICE_RUNNER_H_
#define PUSHPULL_WORKER_MODEL_DEVICE_RUNNER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/variable_layout.h"
#include "kernels/device.h"
#include "worker/model/network_runner.h"

namespace pushpull {

// Of activations and their gradients; variables and what is pushed are float32 always.
enum class Precision { kFloat, kBfloat16 };

struct DeviceRunnerOptions {
  RunnerOptions runner;
  Precision precision = Precision::kFloat;
  // Record a step when a batch size comes for the second time, and replay it from then on.
  bool record_steps = true;
  // The gradient leaves in pieces of at least so much, towards its front in smaller ones.
  int64_t piece_bytes = int64_t{2} << 20;
  // Variables that are staged are taken up in pieces of so much, the first ones in smaller ones.
  int64_t forward_piece_bytes = int64_t{1} << 20;
};

// `device` must outlive the runner and serve only the thread that calls it. Errors as
// Network::Create. RESOURCE_EXHAUSTED says how much memory is needed and free, and which batch
// would fit. The runner's calls return the device's error once it has one.
absl::StatusOr<std::unique_ptr<NetworkRunner>> MakeDeviceRunner(const NetworkSpec& spec,
                                                                const VariableLayout& layout,
                                                                Device* device,
                                                                const DeviceRunnerOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_DEVICE_RUNNER_H_
