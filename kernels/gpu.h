// Opens GPUs. In a build without CUDA every call says so.
#ifndef PUSHPULL_KERNELS_GPU_H_
#define PUSHPULL_KERNELS_GPU_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/device.h"

namespace pushpull {

struct GpuOptions {
  // Which of the GPUs: "0", or a UUID as nvidia-smi -L prints it ("GPU-5a3c..."; a prefix will do).
  std::string gpu = "0";
  int64_t memory_limit_bytes = 0;  // of this process on that GPU; 0: all there is
};

// How many GPUs this process can use. UNIMPLEMENTED: built without CUDA. FAILED_PRECONDITION: the
// driver is too old (both versions are named). 0 where there is no GPU or no driver.
absl::StatusOr<int> CountGpus();

// NOT_FOUND: there is no such GPU (the ones there are are named); RESOURCE_EXHAUSTED: it is full;
// and errors as above. The device serves this process until it ends.
absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const GpuOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_GPU_H_
