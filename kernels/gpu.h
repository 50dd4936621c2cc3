// Opens GPUs. In a build without CUDA every call returns UNIMPLEMENTED.
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

// Who computes convolutions: our kernels, or the libraries cuDNN and cuBLASLt where they are faster
// or wherever they can.
enum class GpuLibrary { kOwn, kAuto, kVendor };

struct GpuOptions {
  // The GPU's index ("0"), or its UUID as nvidia-smi -L prints it ("GPU-5a3c..."), of which a
  // unique prefix is enough.
  std::string gpu = "0";
  // The most GPU memory that Allocate hands out to this process, trials of libraries included; 0:
  // no limit. What CUDA and the libraries take for themselves comes on top.
  int64_t memory_limit_bytes = 0;
  // kAuto: each operator is computed in the way that was fastest when its shape was new. Without
  // the libraries our kernels compute everything, and a line of the log says so.
  GpuLibrary library = GpuLibrary::kOwn;
  // kAuto: a file that keeps the choices for later runs; empty: they are made again in each run.
  std::string library_choices_file = {};
};

// The number of GPUs that this process can use; 0 if there is no GPU or no driver.
//   UNIMPLEMENTED: built without CUDA.
//   FAILED_PRECONDITION: the driver is too old (the message names both versions), or CUDA does not
//       start.
//   ABORTED: CUDA cannot be used yet, because the machine is still starting; this may pass.
absl::StatusOr<int> CountGpus();

// Opens one GPU. Blocks while CUDA sets it up, which can take seconds. The calling thread's current
// CUDA device becomes this GPU. Errors as for CountGpus, and
//   NOT_FOUND: there is no such GPU; the message lists those of this machine.
//   FAILED_PRECONDITION: GpuLibrary::kVendor, and neither library can be loaded.
//   ABORTED: the GPU does not answer or cannot be used, for instance because its memory is full.
absl::StatusOr<std::unique_ptr<Device>> OpenGpu(const GpuOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_GPU_H_
