// kernels/gpu.h for a GPU that only takes time, so that the real worker can run on it.
// PUSHPULL_PACED_GB_PER_S gives the bandwidth of its memory (default 4300).
#include <cstdlib>

#include "kernels/gpu.h"
#include "scripts/bench/paced/paced_device.h"

namespace pushpull {

absl::StatusOr<int> CountGpus() { return 1; }

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const GpuOptions&) {
  DevicePace pace;
  const char* const bandwidth = std::getenv("PUSHPULL_PACED_GB_PER_S");
  if (bandwidth != nullptr) pace.memory_bytes_per_second = 1e9 * std::atof(bandwidth);
  return MakePacedDevice(pace);
}

}  // namespace pushpull
