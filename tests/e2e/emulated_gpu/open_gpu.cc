// kernels/gpu.h for emulated GPUs, so that the real programs run with --gpus on machines without a
// GPU. The environment describes the machine, because tests have no other way to configure a
// process:
//   PUSHPULL_EMULATED_GPUS        number of GPUs; default 1
//   PUSHPULL_EMULATED_DRIVER      CUDA version of the driver, 13000 for 13.0
//   PUSHPULL_EMULATED_MEMORY_MB   memory of each GPU
//   PUSHPULL_EMULATED_MULTIPROCESSORS  number of multiprocessors of each GPU; default 4
//   PUSHPULL_EMULATED_LAUNCHES    a file for the list of launches of StartLaunchList; nothing is
//                                 computed then
//   PUSHPULL_EMULATED_FAILURE     a file that holds a number N. The process that manages to remove
//                                 the file loses its GPU after N launches.
//   PUSHPULL_EMULATED_LOST        the name of a file. The process that removes the file of
//                                 PUSHPULL_EMULATED_FAILURE makes it. While it exists, processes
//                                 that start find no GPU.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/emulation/launch_list.h"
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
  const char* const lost = std::getenv("PUSHPULL_EMULATED_LOST");
  if (lost != nullptr && std::ifstream(lost).good()) machine.device_count = 0;
  machine.driver_version = static_cast<int>(Setting("PUSHPULL_EMULATED_DRIVER", 13000));
  machine.multiprocessors = static_cast<int>(Setting("PUSHPULL_EMULATED_MULTIPROCESSORS", 4));
  machine.memory_bytes = static_cast<size_t>(Setting("PUSHPULL_EMULATED_MEMORY_MB", 4096)) << 20;
  return machine;
}

// Removes the file of the failure, or moves it to where it says that there is no GPU any more.
bool TakeFailure(const char* path) {
  const char* const lost = std::getenv("PUSHPULL_EMULATED_LOST");
  return (lost == nullptr ? std::remove(path) : std::rename(path, lost)) == 0;
}

void ArrangeFailure(emulated_cuda::EmulatedMachine machine) {
  const char* const path = std::getenv("PUSHPULL_EMULATED_FAILURE");
  if (path == nullptr) return;
  int64_t launches = -1;
  std::ifstream(path) >> launches;
  if (launches < 0 || !TakeFailure(path)) return;
  machine.launches_until_failure = launches;
  emulated_cuda::SetEmulatedMachine(machine);
}

}  // namespace

absl::StatusOr<int> CountGpus() {
  emulated_cuda::SetEmulatedMachine(Machine());
  return emulated_cuda::CountDevices();
}

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const GpuOptions& options) {
  const emulated_cuda::EmulatedMachine machine = Machine();
  emulated_cuda::SetEmulatedMachine(machine);
  const char* const launches = std::getenv("PUSHPULL_EMULATED_LAUNCHES");
  if (launches != nullptr && !emulation::StartLaunchList(launches)) {
    return absl::InvalidArgumentError(
        absl::StrCat("PUSHPULL_EMULATED_LAUNCHES: cannot write ", launches));
  }
  auto device = emulated_cuda::OpenDevice(options);
  if (device.ok()) ArrangeFailure(machine);
  return device;
}

}  // namespace pushpull
