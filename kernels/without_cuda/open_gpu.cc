// Implements kernels/gpu.h in a build without CUDA.
// Not tested: both calls only return an error.
#include "kernels/gpu.h"

namespace pushpull {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError(
      "built without CUDA: no GPU can be used; install the CUDA toolkit and build again, or "
      "compute "
      "on the CPU");
}

}  // namespace

absl::StatusOr<int> CountGpus() { return NoCuda(); }

absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const GpuOptions&) { return NoCuda(); }

}  // namespace pushpull
