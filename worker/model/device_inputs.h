// Brings what a call of a device runner reads into the device's memory: variables and batches,
// ahead of the call where it was told of them (network_runner.h: the hints).
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

// T: of the network, float or Bfloat16. Everything is queued; only pictures that are taken back or
// replaced are waited for.
template <typename T>
class DeviceInputs {
 public:
  // All must outlive the object.
  DeviceInputs(const NetworkSpec* spec, const RunnerOptions* options, Device* device,
               Operators<T>* operators, DeviceBuffers* buffers);

  // Uploads elements [first, end). First 0 begins anew, and then the device has to rest.
  void StageVariables(const float* variables, int64_t first, int64_t end);
  // How much of this vector is there or on its way, from its beginning.
  int64_t StagedEnd(const float* variables) const {
    return variables == staged_vector_ ? staged_end_ : 0;
  }
  // What is queued from now on finds the variables that have been staged so far.
  void AwaitStagedVariables();
  // All of these, now.
  void UploadVariables(const float* variables, int64_t elements);

  void StagePictures(const PackedPictures& pictures);
  // Blocks while pictures that were staged, and that no batch has taken, are still being read.
  void TakePicturesBack();
  // The batch, with labels or objects where wanted, and the seed. True: something has moved, so
  // that recordings of the old addresses are of no use. Only while the device rests. Errors of
  // Allocate.
  absl::StatusOr<bool> UploadBatch(const ImageBatch<float>& batch, bool with_targets,
                                   uint64_t dropout_seed);
  // Where the last UploadBatch has put it.
  NetworkBatch<T> BatchOnDevice(int64_t samples) const;

 private:
  absl::StatusOr<bool> UploadObjects(const ImageBatch<float>& batch);
  void UploadFloatImages(const ImageBatch<float>& batch);
  void UploadPictures(const ImageBatch<float>& batch);

  const NetworkSpec& spec_;
  const PictureInput picture_input_;
  const RunnerOptions& options_;
  Device& device_;
  Operators<T>& operators_;
  DeviceBuffers& buffers_;
  FlatObjects objects_;

  const float* staged_vector_ = nullptr;
  int64_t staged_end_ = 0;
  const std::unique_ptr<DeviceEvent> variables_uploaded_;

  // A step reads its pictures first of all, so those of the next can follow them to the same place.
  PackedPictures staged_pictures_;
  bool pictures_were_uploaded_ = false;
  bool pictures_were_read_ = false;
  const std::unique_ptr<DeviceEvent> pictures_uploaded_;  // the last time
  const std::unique_ptr<DeviceEvent> pictures_read_;      // the last time
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_MODEL_DEVICE_INPUTS_H_
