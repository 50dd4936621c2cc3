// The device flags of every program that computes with a network: --gpus, --device, --precision,
// --gpu_memory_limit_mb and --cpu_isa. A program gets these flags by calling a function of this
// header. For the main thread only.
#ifndef PUSHPULL_WORKER_CLI_DEVICE_FLAGS_H_
#define PUSHPULL_WORKER_CLI_DEVICE_FLAGS_H_

#include "absl/status/status.h"

#include "worker/cli/device_choice.h"

namespace pushpull {

// Reads the flags, and leaves the other fields at their defaults.
DeviceFlags DeviceFromFlags();

// Checks the flags of a program that computes in one process. UsageError (exit code 64): --gpus
// names more than one GPU, or CheckDeviceFlags fails.
absl::Status CheckFlagsOfOneDevice();

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLI_DEVICE_FLAGS_H_
