// Understands the options --gpus and --gpu_library. Pure functions.
#ifndef PUSHPULL_KERNELS_DEVICE_SELECTION_H_
#define PUSHPULL_KERNELS_DEVICE_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "kernels/gpu.h"

namespace pushpull {

struct ListedDevice {
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-5a3c0d1e-..."
};

// Formats the sixteen bytes that CUDA reports, e.g. "GPU-5a3c0d1e-0123-4567-89ab-cdef01234567".
std::string FormatUuid(const unsigned char bytes[16]);

// Returns the index of the device that `gpu` names. `gpu` is an index, a UUID, or a prefix of a
// UUID that only one device has; upper and lower case are the same.
//   NOT_FOUND: no device or several devices match; the message lists the devices.
absl::StatusOr<int> SelectDevice(const std::vector<ListedDevice>& devices, const std::string& gpu);

// "own", "auto" or "vendor". INVALID_ARGUMENT: it is something else.
absl::StatusOr<GpuLibrary> ParseGpuLibrary(absl::string_view text);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DEVICE_SELECTION_H_
