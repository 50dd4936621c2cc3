// Implements kernels/device.h on CUDA.
#ifndef PUSHPULL_KERNELS_CUDA_CUDA_DEVICE_H_
#define PUSHPULL_KERNELS_CUDA_CUDA_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"

#include "kernels/cuda/platform.h"
#include "kernels/device.h"
#include "kernels/gpu.h"

namespace pushpull::PUSHPULL_CUDA {

// As CountGpus and OpenGpu of kernels/gpu.h, which call these.
absl::StatusOr<int> CountDevices();
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const GpuOptions& options);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CUDA_DEVICE_H_
