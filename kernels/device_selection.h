// Which device an option such as --gpus means.
#ifndef PUSHPULL_KERNELS_DEVICE_SELECTION_H_
#define PUSHPULL_KERNELS_DEVICE_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pushpull {

struct ListedDevice {
  std::string name;  // "NVIDIA H200"
  std::string uuid;  // "GPU-5a3c0d1e-..."
};

// "GPU-5a3c0d1e-0123-4567-89ab-cdef01234567" from the sixteen bytes CUDA gives.
std::string FormatUuid(const unsigned char bytes[16]);

// The index of the device that `gpu` names: an index, or a UUID or the beginning of one that only
// one device has. NOT_FOUND lists the devices there are.
absl::StatusOr<int> SelectDevice(const std::vector<ListedDevice>& devices, const std::string& gpu);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DEVICE_SELECTION_H_
