// Copies the variables and batches of a device runner's calls to the device. Those that were
// announced by a hint (network_runner.h) are copied before the call that uses them.
#ifndef PUSHPULL_WORKER_MODEL_DEVICE_INPUTS_H_
#define PUSHPULL_WORKER_MODEL_DEVICE_INPUTS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "kernels/device.h"
#include "worker/model/device_buffers.h"
#include "worker/model/network_runner.h"
#include "worker/model/objective.h"

namespace pushpull {

// T is the network's type of activations: float or Bfloat16. Thread-compatible. Calls only queue
// work on the device; StageImages and CancelImages may also wait for an earlier upload.
template <typename T>
class DeviceInputs {
 public:
  // All arguments must outlive the object.
  DeviceInputs(const NetworkSpec* spec, const RunnerOptions* options, Device* device,
               Operators<T>* operators, DeviceBuffers* buffers);

  // Starts the upload of elements [first, end) of `variables`. `first` = 0 starts over, with this
  // vector; no queued work may then still read the previous variables. After a gap, or for another
  // vector than the one that was started, nothing counts as staged until the next `first` = 0.
  void StageVariables(const float* variables, int64_t first, int64_t end);
  // Elements [0, StagedEnd(variables)) of `variables` are uploaded or being uploaded.
  int64_t StagedEnd(const float* variables) const {
    return variables == staged_vector_ ? staged_end_ : 0;
  }
  // Makes operators that are queued later wait for the variables that have been staged so far.
  void AwaitStagedVariables();
  // Queues a copy of all elements, in order with the operators. Staged variables are dropped.
  void UploadVariables(const float* variables, int64_t elements);

  // Starts the upload of the packed images of the next batch. Ignored if the runner takes float
  // images. The memory must not change until CancelImages returns, or until the device has run
  // what the next UploadBatch queues.
  void StageImages(const PackedImages& packed_images);
  // Cancels StageImages if UploadBatch has not used the images yet: blocks until the device has
  // read them.
  void CancelImages();
  // Queues the upload of the batch and of the seed, and the conversion of the images to what the
  // network reads. `with_targets` includes labels (classifier) or objects (detector). Returns true
  // if a buffer has a new address, so that recorded graphs must be dropped. No queued work may
  // still read the previous batch. Errors as Device::Allocate.
  absl::StatusOr<bool> UploadBatch(const ImageBatch<float>& batch, bool with_targets,
                                   uint64_t dropout_seed);
  // The batch of the last UploadBatch in the device's memory.
  NetworkBatch<T> BatchOnDevice(int64_t samples) const;

 private:
  absl::StatusOr<bool> UploadObjects(const ImageBatch<float>& batch);
  void UploadFloatImages(const ImageBatch<float>& batch);
  void UploadImages(const ImageBatch<float>& batch);

  const NetworkSpec& spec_;
  const ImageInput image_input_;
  const RunnerOptions& options_;
  Device& device_;
  Operators<T>& operators_;
  DeviceBuffers& buffers_;
  FlatObjects objects_;

  const float* staged_vector_ = nullptr;
  int64_t staged_end_ = 0;
  // An upload of variables has been queued that the compute queue does not wait for yet. It may be
  // one of variables that are no longer staged.
  bool variables_under_way_ = false;
  const std::unique_ptr<DeviceEvent> variables_uploaded_;

  // One buffer is enough: a step samples its packed images before anything else, and the upload
  // of the next ones waits only for that (images_read_).
  PackedImages staged_images_;         // without data: none are staged
  bool images_were_uploaded_ = false;  // images_uploaded_ has been recorded
  bool images_were_read_ = false;      // images_read_ has been recorded
  const std::unique_ptr<DeviceEvent> images_uploaded_;
  const std::unique_ptr<DeviceEvent> images_read_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_DEVICE_INPUTS_H_
