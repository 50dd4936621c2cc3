// A GPU as the worker sees it: memory, operators, and three queues of work.
//
//   compute queue   runs the operators
//   copy queue      copies to the host, so that gradients leave while the backward pass goes on
//   upload queue    copies to the device ahead of time, so that weights and images are there before
//                   the step that needs them
//
// Each queue runs its work in order. The queues run side by side; events order them where needed.
//
// Thread rule: one calling thread at a time. Calls queue work and return; Wait and Write block. The
// first error of queued work sticks: all later calls do nothing, and Wait and status() return the
// error. It is ABORTED and names the device and the call that returned the error: work that fails
// in a queue is reported by whichever call comes next. The process has to be started again.
#ifndef PUSHPULL_KERNELS_DEVICE_H_
#define PUSHPULL_KERNELS_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/memory.h"
#include "kernels/operators.h"

namespace pushpull {

// The most samples of a batch on a device: CUDA's limit of gridDim.y, in which kernels have the
// number of the sample.
inline constexpr int64_t kMaxDeviceSamples = 65535;

// A marker in the work of a queue. Another queue or the host can wait until the work before it is
// done.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Operators that were recorded once and can be queued again with a single call.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// Must outlive its memory, events and graphs.
class Device : public MemorySource {
 public:
  virtual std::string description() const = 0;  // "GPU 0 (NVIDIA H200, 139.8 GiB)"
  virtual std::string model() const = 0;        // "NVIDIA H200"
  virtual std::string uuid() const = 0;         // "GPU-5a3c...", as nvidia-smi -L prints it
  // Returns whether libraries may compute convolutions (GpuLibrary). If so, the last bits of
  // results depend on which algorithms were chosen on this machine.
  virtual bool uses_libraries() const = 0;

  // The bytes that Allocate can still hand out in total: the free memory of the GPU, bounded by
  // this process's limit. 0 if the GPU does not answer.
  virtual int64_t free_bytes() const = 0;
  // What free_bytes would be if no other process used the GPU. A sixteenth of the GPU's memory is
  // left out of it; CUDA and its libraries take about that much in each process, beside the limit.
  virtual int64_t free_bytes_without_others() const = 0;

  // Allocates pinned (page-locked) host memory, zeroed, which the device can copy from and to while
  // the host does something else. Errors as for Allocate.
  virtual absl::StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t bytes) = 0;

  // The operators of this device. They queue their work on the compute queue and live as long as
  // the device.
  virtual Operators<float>* float_operators() = 0;
  virtual Operators<Bfloat16>* bfloat16_operators() = 0;

  // Queues a copy to the device on the compute queue, so it runs in order with the operators.
  // `from` should be pinned memory, since a copy from any other memory takes longer. It must stay
  // unchanged until the copy is done.
  virtual void CopyToDevice(void* to, const void* from, int64_t bytes) = 0;

  // Like CopyToDevice, but on the upload queue, and not before the compute queue has reached
  // `after` (null: without waiting). Operators that read `to` must be queued after a ComputeAfter
  // with an event that was recorded after the upload.
  virtual void Upload(void* to, const void* from, int64_t bytes, DeviceEvent* after) = 0;

  // Queues a copy to the host on the copy queue, which starts once the compute queue has reached
  // `after` (not null). `to` should be pinned memory: with any other the call blocks until the copy
  // is done.
  virtual void CopyToHost(void* to, const void* from, int64_t bytes, DeviceEvent* after) = 0;

  virtual std::unique_ptr<DeviceEvent> MakeEvent() = 0;
  // Each records the event after the work that is now in its queue. An event can be recorded again.
  virtual void RecordCompute(DeviceEvent* event) = 0;
  virtual void RecordCopy(DeviceEvent* event) = 0;
  virtual void RecordUpload(DeviceEvent* event) = 0;
  // Work that is queued on the compute queue from now on waits for the event, which must have been
  // recorded.
  virtual void ComputeAfter(DeviceEvent* event) = 0;
  // Blocks until the work before the event is done; the calling thread sleeps. Returns status().
  virtual absl::Status Wait(DeviceEvent* event) = 0;
  // The time between two events, which must have been recorded on the compute queue and waited for.
  virtual absl::StatusOr<double> MillisecondsBetween(DeviceEvent* first, DeviceEvent* second) = 0;

  // Calls `work` and records the operators that it calls instead of running them. `work` may use
  // nothing else of the device. The recording holds the addresses of all operands, so the memory
  // must stay where it is as long as the graph is launched.
  virtual std::unique_ptr<DeviceGraph> Record(absl::FunctionRef<void()> work) = 0;
  // Queues the recorded operators on the compute queue.
  virtual void Launch(DeviceGraph* graph) = 0;

  // OK, or the first error. Does not wait for queued work.
  virtual absl::Status status() const = 0;
};

// Returns the device's operators for tensors of T, which is float or Bfloat16.
template <typename T>
Operators<T>* OperatorsOf(Device* device) {
  if constexpr (std::is_same_v<T, float>) {
    return device->float_operators();
  } else {
    return device->bfloat16_operators();
  }
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DEVICE_H_
