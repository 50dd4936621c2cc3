// Loads the libraries that may compute convolutions.
#ifndef PUSHPULL_KERNELS_CUDA_VENDOR_OPEN_LIBRARIES_H_
#define PUSHPULL_KERNELS_CUDA_VENDOR_OPEN_LIBRARIES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/cuda/vendor/convolution_choice.h"
#include "kernels/gpu.h"

namespace pushpull::PUSHPULL_CUDA {

// The version of our kernels: the last one of the table in kernels/cuda/NOTES.md. Raise it when
// they become faster or slower, so that choices that were kept are made again.
inline constexpr int kKernelsVersion = 10;

// Opens those of cuDNN and cuBLASLt that the machine has, for the current device, whose name is
// `gpu`, and the file of choices. options.library is kAuto or kVendor; kAuto: null if there is
// none, which is logged. FAILED_PRECONDITION: kVendor, and there is none.
absl::StatusOr<std::unique_ptr<ChoiceContext>> OpenLibraries(const GpuOptions& options,
                                                             absl::string_view gpu);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_VENDOR_OPEN_LIBRARIES_H_
