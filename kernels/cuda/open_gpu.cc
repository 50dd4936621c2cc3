// Implements kernels/gpu.h in a build with CUDA.
// Not tested: it only passes calls on, and the tests open devices of their own.
#include "kernels/cuda/cuda_device.h"
#include "kernels/gpu.h"

namespace pushpull {

absl::StatusOr<int> CountGpus() { return cuda::CountDevices(); }

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const GpuOptions& options) {
  return cuda::OpenDevice(options);
}

}  // namespace pushpull
