// A device that defers all work until somebody waits for it, and then only does what this wait
// needs. If a runner reads a result too early or overwrites data before their copy is done, the
// results are wrong. Its memory is host memory, and its operators are the reference operators.
#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_DEFERRED_DEVICE_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_DEFERRED_DEVICE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace pushpull {

class DeferredDevice final : public Device {
 public:
  explicit DeferredDevice(int64_t memory_bytes = int64_t{1} << 32);
  ~DeferredDevice() override;

  // When uploads happen, within the allowed range. Each value reveals another kind of mistake.
  enum class Uploads {
    kWhenAwaited,        // reading an upload without waiting for it
    kAtOnce,             // letting an upload overwrite data too early
    kBehindComputing,    // one upload after each operator: missing the end of an upload
    kNothingIsDeferred,  // computing too early
  };
  void SetUploads(Uploads uploads) { when_uploads_ = uploads; }
  // The `count`-th piece of work that is queued from now on fails, and so do all later ones.
  void FailAfter(int64_t count) { work_left_ = count; }
  int num_graphs() const { return num_graphs_; }
  int num_launches() const { return num_launches_; }
  int64_t performed() const { return performed_; }  // number of pieces of work
  // Bytes that Upload and CopyToDevice have moved.
  int64_t uploaded_bytes() const { return uploaded_bytes_; }
  int64_t copied_bytes() const { return copied_bytes_; }

  std::string description() const override { return "deferred device"; }
  std::string model() const override { return "deferred"; }
  std::string uuid() const override { return "GPU-deferred"; }
  bool uses_libraries() const override { return false; }
  int64_t free_bytes() const override { return free_bytes_; }
  int64_t free_bytes_without_others() const override { return free_bytes_; }
  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t bytes) override;
  void Write(void* to, const void* from, int64_t bytes) override;
  Operators<float>* float_operators() override { return operators_.get(); }
  Operators<Bfloat16>* bfloat16_operators() override;  // CHECK-fails: there are none
  void CopyToDevice(void* to, const void* from, int64_t bytes) override;
  void Upload(void* to, const void* from, int64_t bytes, DeviceEvent* after) override;
  void CopyToHost(void* to, const void* from, int64_t bytes, DeviceEvent* after) override;
  std::unique_ptr<DeviceEvent> MakeEvent() override;
  void RecordCompute(DeviceEvent* event) override { Mark(event, &compute_); }
  void RecordCopy(DeviceEvent* event) override { Mark(event, &copies_); }
  void RecordUpload(DeviceEvent* event) override { Mark(event, &uploads_); }
  void ComputeAfter(DeviceEvent* event) override;
  absl::Status Wait(DeviceEvent* event) override;
  // Returns one millisecond per piece of work.
  absl::StatusOr<double> MillisecondsBetween(DeviceEvent* first, DeviceEvent* second) override;
  std::unique_ptr<DeviceGraph> Record(absl::FunctionRef<void()> work) override;
  void Launch(DeviceGraph* graph) override;
  absl::Status status() const override { return status_; }

  // Queues or records the work of an operator.
  void Queue(std::function<void()> work);

 private:
  struct Event;
  struct Graph;
  struct WorkQueue {
    std::deque<std::function<void()>> work;
    int64_t done = 0;
    int64_t end() const { return done + static_cast<int64_t>(work.size()); }
  };

  void Mark(DeviceEvent* event, WorkQueue* queue);
  void RunUntil(WorkQueue* queue, int64_t place);
  void Perform(const std::function<void()>& work);
  void CheckNotRecording() const;
  void RunWhatIsNotDeferred();

  int64_t free_bytes_;
  int64_t work_left_ = INT64_MAX;
  Uploads when_uploads_ = Uploads::kWhenAwaited;
  int num_graphs_ = 0;
  int num_launches_ = 0;
  int64_t performed_ = 0;
  int64_t uploaded_bytes_ = 0;
  int64_t copied_bytes_ = 0;
  absl::Status status_;
  WorkQueue compute_, copies_, uploads_;
  std::deque<int64_t> uploads_after_;  // the place in the compute queue of each queued upload
  std::vector<std::function<void()>>* recording_ = nullptr;
  std::unique_ptr<Operators<float>> operators_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_DEFERRED_DEVICE_H_
