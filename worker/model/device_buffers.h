// What a device runner keeps in the memory of a device and of the host, beside the network itself.
#ifndef PUSHPULL_WORKER_MODEL_DEVICE_BUFFERS_H_
#define PUSHPULL_WORKER_MODEL_DEVICE_BUFFERS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "kernels/device.h"
#include "worker/model/network_runner.h"

namespace pushpull {

// Sizes in bytes.
struct DeviceBufferSizes {
  int64_t variables = 0;
  int64_t gradient = 0;      // 0: no training
  int64_t images = 0;        // as they come: floats or packed pictures
  int64_t typed_images = 0;  // as the network reads them, where these are no floats
  int64_t labels = 0;        // per sample, also of the end: labels and first_object have this each
  int64_t objects = 0;       // at first
  int64_t outputs = 0;       // as floats
  bool converts = false;     // the network's numbers are no floats
  bool pictures = false;     // which are read where they are, floats are copied on the host

  // `element_bytes` of an activation.
  DeviceBufferSizes(const NetworkSpec& spec, int64_t total_elements, const RunnerOptions& options,
                    int64_t element_bytes);

  // The blocks of AllocateOnDevice.
  std::vector<int64_t> DeviceBlocks() const;
};

// The same bytes on both sides.
struct StagedMemory {
  std::unique_ptr<Memory> device;
  std::unique_ptr<Memory> host;  // pinned

  template <typename T>
  T* on_device(int64_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(static_cast<char*>(device->data()) + offset_bytes);
  }
  template <typename T>
  T* on_host(int64_t offset_bytes = 0) const {
    return reinterpret_cast<T*>(static_cast<char*>(host->data()) + offset_bytes);
  }
};

class DeviceBuffers {
 public:
  // A block of its own for what is small: seed, result, labels, first objects, in this order.
  static constexpr int64_t kSeedAt = 0;
  static constexpr int64_t kResultAt = 256;
  static constexpr int64_t kLabelsAt = 512;
  static_assert(kResultAt + sizeof(ObjectiveResult) <= kLabelsAt);

  DeviceBuffers(Device* device, const DeviceBufferSizes& sizes) : device_(*device), sizes_(sizes) {}

  absl::Status AllocateOnDevice();
  absl::Status AllocateOnHost();
  // Makes room for so many bytes of objects; true if they have moved. Only while the device rests.
  absl::StatusOr<bool> GrowObjects(int64_t bytes);

  int64_t first_object_at() const { return kLabelsAt + sizes_.labels; }
  int64_t small_bytes() const { return kLabelsAt + 2 * sizes_.labels; }

  std::unique_ptr<Memory> variables, gradient;
  std::unique_ptr<Memory> pictures;
  StagedMemory float_images;  // one of the two kinds is there
  std::unique_ptr<Memory> typed_images;
  StagedMemory small, objects, outputs;

 private:
  Device& device_;
  const DeviceBufferSizes sizes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_DEVICE_BUFFERS_H_
