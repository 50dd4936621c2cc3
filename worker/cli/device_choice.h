// Where a program computes, as its flags --device, --gpus, --precision and --gpu_memory_limit_mb
// say, and the GPU opened. Thread-compatible.
#ifndef PUSHPULL_WORKER_CLI_DEVICE_CHOICE_H_
#define PUSHPULL_WORKER_CLI_DEVICE_CHOICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/device.h"
#include "kernels/gpu.h"
#include "worker/model/device_runner.h"

namespace pushpull {

// The values of the flags; empty: not given.
struct DeviceFlags {
  std::string device;               // "cuda" or "cpu"; default: a GPU if there is one
  std::vector<std::string> gpus;    // indices or UUIDs, one per process; default: one after another
  std::string precision;            // "fp32" or "bf16"
  int64_t gpu_memory_limit_mb = 0;  // of this process; 0: all there is
  Precision default_precision = Precision::kFloat;  // on a GPU
};

// How GPUs are found: CountGpus and OpenGpu of kernels/gpu.h.
struct GpuAccess {
  absl::FunctionRef<absl::StatusOr<int>()> count;
  absl::FunctionRef<absl::StatusOr<std::unique_ptr<Device>>(const GpuOptions&)> open;
};

struct ChosenDevice {
  std::unique_ptr<Device> device;  // null: the CPU
  Precision precision = Precision::kFloat;
  std::string warning;  // why it is the CPU although nobody asked for it; else empty
};

// What can be wrong with the flags alone, whatever GPUs there are: exit code 64. Touches no GPU, so
// that a process that starts others may call it.
absl::Status CheckDeviceFlags(const DeviceFlags& flags);

// Opens the GPU of process `index` (of the clones of a worker; 0 elsewhere). Errors, with their
// exit codes: what CheckDeviceFlags says, no such GPU, or a build without CUDA (64); a driver that
// is too old (70); a GPU that does not answer (201).
absl::StatusOr<ChosenDevice> OpenChosenDevice(const DeviceFlags& flags, int index,
                                              const GpuAccess& access);

// The status with which a program ends: of a GPU that failed in it, with exit code 201.
absl::Status WithDeviceExitCode(absl::Status status, const Device* device);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLI_DEVICE_CHOICE_H_
