// A GPU as the worker sees it: memory, operators, and three queues of work: one for computing, one
// for copies back to the host, so that gradients leave while backward goes on, and one for uploads
// ahead, so that weights and images arrive before the step that needs them.
//
// Thread rule: one calling thread at a time. Calls queue work and return; Wait blocks. The first
// error of queued work sticks: everything after it does nothing, and Wait and status() return it
// (ABORTED, with the device and the operator that failed: the process has to be started again).
#ifndef PUSHPULL_KERNELS_DEVICE_H_
#define PUSHPULL_KERNELS_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/memory.h"
#include "kernels/operators.h"

namespace pushpull {

// A place in a queue's work.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// Work that was recorded once, to be queued as a whole.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

class Device : public MemorySource {
 public:
  virtual std::string description() const = 0;  // "GPU 0 (NVIDIA H200, 139.8 GiB)"
  virtual std::string uuid() const = 0;         // "GPU-5a3c...", as nvidia-smi -L prints it

  // What Allocate can still give, in all.
  virtual int64_t free_bytes() const = 0;

  // Host memory that the device copies from and to by itself. Errors as Allocate.
  virtual absl::StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t bytes) = 0;

  // Of this device, on its compute queue; they live as long as the device.
  virtual Operators<float>* float_operators() = 0;
  virtual Operators<Bfloat16>* bfloat16_operators() = 0;

  // From pinned memory (any other takes longer), in order with the operators. `from` has to stay as
  // it is until the copy is done.
  virtual void CopyToDevice(void* to, const void* from, int64_t bytes) = 0;

  // As CopyToDevice, but on the upload queue, once the compute queue has reached `after` (null: at
  // once). Operators that read it have to come after a ComputeAfter.
  virtual void Upload(void* to, const void* from, int64_t bytes, DeviceEvent* after) = 0;

  // To pinned memory (to any other the call waits for the copy) on the copy queue, once the compute
  // queue has reached `after`.
  virtual void CopyToHost(void* to, const void* from, int64_t bytes, DeviceEvent* after) = 0;

  virtual std::unique_ptr<DeviceEvent> MakeEvent() = 0;
  virtual void RecordCompute(DeviceEvent* event) = 0;  // after what the compute queue has so far
  virtual void RecordCopy(DeviceEvent* event) = 0;     // after what the copy queue has so far
  virtual void RecordUpload(DeviceEvent* event) = 0;   // after what the upload queue has so far
  // What the compute queue gets from now on waits for the event, which has been recorded.
  virtual void ComputeAfter(DeviceEvent* event) = 0;
  virtual absl::Status Wait(DeviceEvent* event) = 0;
  // Of two events that have been waited for; to be measured, both recorded on the compute queue.
  virtual absl::StatusOr<double> MillisecondsBetween(DeviceEvent* first, DeviceEvent* second) = 0;

  // Runs `work`, which calls operators (nothing else of the device), and records instead of running
  // what they queue. Addresses are part of the recording.
  virtual std::unique_ptr<DeviceGraph> Record(absl::FunctionRef<void()> work) = 0;
  virtual void Launch(DeviceGraph* graph) = 0;

  virtual absl::Status status() const = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DEVICE_H_
