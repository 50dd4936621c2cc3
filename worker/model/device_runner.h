// A NetworkRunner on a GPU (kernels/device.h). It copies the caller's variables and batches to the
// device, and copies the gradient back in pieces while the backward pass is still running.
#ifndef PUSHPULL_WORKER_MODEL_DEVICE_RUNNER_H_
#define PUSHPULL_WORKER_MODEL_DEVICE_RUNNER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/model/variable_layout.h"
#include "kernels/device.h"
#include "worker/model/network_runner.h"

namespace pushpull {

struct DeviceRunnerOptions {
  RunnerOptions runner;
  Precision precision = Precision::kFloat;
  // Records the second step of each batch size as device graphs and replays them from then on.
  bool record_steps = true;
  // The least size of the pieces in which the gradient is copied back. Pieces near the front of the
  // vector are smaller; see Network::ContinueStep.
  int64_t piece_bytes = int64_t{2} << 20;
  // While variables are being staged, the forward pass is queued each time about this much more of
  // them has been staged. The first pieces are smaller; see Network::ForwardStops.
  int64_t forward_piece_bytes = int64_t{1} << 20;
};

// Builds a runner. `device` must outlive it and be used only by the thread that calls the runner.
// Errors as Network::Create; INVALID_ARGUMENT: a batch has more samples than kMaxDeviceSamples;
// RESOURCE_EXHAUSTED: the message says how much memory is needed, how much is free, and which batch
// size would fit; see also MemoryMayBecomeFree. After the first error of the device, all calls of
// the runner return it.
absl::StatusOr<std::unique_ptr<NetworkRunner>> MakeDeviceRunner(const NetworkSpec& spec,
                                                                const VariableLayout& layout,
                                                                Device* device,
                                                                const DeviceRunnerOptions& options);

// Returns whether `status` is an error of MakeDeviceRunner, or of a step of its runner, about
// memory that would do if no other process held some of it. Trying again later may help then.
bool MemoryMayBecomeFree(const absl::Status& status);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_DEVICE_RUNNER_H_
