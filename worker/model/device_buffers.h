// Buffers of a device runner, on the device and in pinned host memory. The network's own memory
// (arena, workspace) is not among them.
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

inline constexpr int64_t kFloatBytes = sizeof(float);

// The payload of a status for which MemoryMayBecomeFree (device_runner.h) is true.
inline constexpr char kMayBecomeFreeUrl[] = "pushpull/memory_may_become_free";

// Sizes of the buffers in bytes.
struct DeviceBufferSizes {
  int64_t variables = 0;
  int64_t gradient = 0;      // 0: no training
  int64_t images = 0;        // the images as the caller passes them: floats or packed images
  int64_t typed_images = 0;  // the images as the network reads them; 0 if it reads `images`
  int64_t labels = 0;     // max_batch + 1 entries; `labels` and `first_object` have this size each
  int64_t objects = 0;    // initial size, see GrowObjects; 0: the network is no detector
  int64_t outputs = 0;    // as floats
  bool converts = false;  // the network computes in another type than float
  bool packed_images = false;  // images come packed and are uploaded from the caller's memory;
                               // otherwise they are floats and pass through pinned memory

  // `element_bytes` is the size of one activation.
  DeviceBufferSizes(const NetworkSpec& spec, int64_t total_elements, const RunnerOptions& options,
                    int64_t element_bytes);

  // Sizes of the blocks that AllocateOnDevice allocates; those of size 0 are skipped there.
  std::vector<int64_t> DeviceBlocks() const;
};

// A buffer on the device and its copy in host memory, of equal size.
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

// Thread-compatible. Owns the buffers.
class DeviceBuffers {
 public:
  // The block `small` holds the dropout seed, the ObjectiveResult, the labels and first_object, so
  // that one copy uploads them together. These are their offsets in bytes.
  static constexpr int64_t kSeedAt = 0;
  static constexpr int64_t kResultAt = 256;
  static constexpr int64_t kLabelsAt = 512;
  static_assert(kResultAt + sizeof(ObjectiveResult) <= kLabelsAt);

  // `device` must outlive the object. Allocates nothing yet.
  DeviceBuffers(Device* device, const DeviceBufferSizes& sizes) : device_(*device), sizes_(sizes) {}

  // Both return the errors of Device::Allocate and AllocatePinned.
  absl::Status AllocateOnDevice();
  absl::Status AllocateOnHost();
  // Makes room for `bytes` bytes of objects, on both sides. Returns true if the buffers were
  // replaced, so that their addresses and contents are new. No queued work may use `objects`.
  // RESOURCE_EXHAUSTED: there is no memory for them; see also MemoryMayBecomeFree. Other errors are
  // those of AllocateOnDevice.
  absl::StatusOr<bool> GrowObjects(int64_t bytes);

  int64_t first_object_at() const { return kLabelsAt + sizes_.labels; }
  int64_t small_bytes() const { return kLabelsAt + 2 * sizes_.labels; }

  std::unique_ptr<Memory> variables, gradient;
  // Only one of `packed_images` and `float_images` is allocated, see DeviceBufferSizes.
  std::unique_ptr<Memory> packed_images;
  StagedMemory float_images;
  std::unique_ptr<Memory> typed_images;
  StagedMemory small, objects, outputs;

 private:
  // `error` is that of an allocation of `room` bytes for objects on the device.
  absl::Status NoRoomForObjects(const absl::Status& error, int64_t room) const;

  Device& device_;
  const DeviceBufferSizes sizes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_DEVICE_BUFFERS_H_
