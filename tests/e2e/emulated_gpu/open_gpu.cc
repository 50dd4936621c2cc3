// kernels/gpu.h on emulated GPUs, so that the real programs run with --gpus on machines without
// one. The environment says what the machine is like, as the tests have no other way to a process:
//   PUSHPULL_EMULATED_GPUS        how many; default 1
//   PUSHPULL_EMULATED_DRIVER      its CUDA version, 13000 for 13.0
//   PUSHPULL_EMULATED_MEMORY_MB   of each
//   PUSHPULL_EMULATED_FAILURE     a file: the process that can remove it loses its GPU after as
//   many
//                                 launches as the file says
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/gpu.h"

namespace pushpull {
namespace {

long Setting(const char* name, long fallback) {
  const char* const text = std::getenv(name);
  return text == nullptr ? fallback : std::atol(text);
}

emulated_cuda::EmulatedMachine Machine() {
  emulated_cuda::EmulatedMachine machine;
  machine.device_count = static_cast<int>(Setting("PUSHPULL_EMULATED_GPUS", 1));
  machine.driver_version = static_cast<int>(Setting("PUSHPULL_EMULATED_DRIVER", 13000));
  machine.memory_bytes = static_cast<size_t>(Setting("PUSHPULL_EMULATED_MEMORY_MB", 4096)) << 20;
  return machine;
}

void ArrangeFailure(emulated_cuda::EmulatedMachine machine) {
  const char* const path = std::getenv("PUSHPULL_EMULATED_FAILURE");
  if (path == nullptr) return;
  int64_t launches = -1;
  std::ifstream(path) >> launches;
  if (launches < 0 || std::remove(path) != 0) return;
  machine.launches_until_failure = launches;
  emulated_cuda::SetEmulatedMachine(machine);
}

}  // namespace

absl::StatusOr<int> CountGpus() {
  emulated_cuda::SetEmulatedMachine(Machine());
  return emulated_cuda::CountDevices();
}

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const GpuOptions& options) {
  emulated_cuda::SetEmulatedMachine(Machine());
  auto device = emulated_cuda::OpenDevice(options);
  if (device.ok()) ArrangeFailure(Machine());
  return device;
}

}  // namespace pushpull
