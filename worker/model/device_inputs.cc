// Tested by tests/worker/model/device_runner_test.cc.
// Tested by tests/worker/model/device_staging_test.cc.
#include "worker/model/device_inputs.h"

#include <cstring>

#include "common/base/status_macros.h"
#include "kernels/bfloat16.h"

namespace pushpull {
template <typename T>
DeviceInputs<T>::DeviceInputs(const NetworkSpec* spec, const RunnerOptions* options, Device* device,
                              Operators<T>* operators, DeviceBuffers* buffers)
    : spec_(*spec),
      image_input_(ImageInputOf(*spec)),
      options_(*options),
      device_(*device),
      operators_(*operators),
      buffers_(*buffers),
      variables_uploaded_(device->MakeEvent()),
      images_uploaded_(device->MakeEvent()),
      images_read_(device->MakeEvent()) {}

template <typename T>
void DeviceInputs<T>::StageVariables(const float* variables, int64_t first, int64_t end) {
  if (first == 0) {
    staged_vector_ = variables;
    staged_end_ = 0;
  }
  if (staged_vector_ != variables || staged_end_ != first) {
    staged_vector_ = nullptr;
    return;
  }
  device_.Upload(static_cast<float*>(buffers_.variables->data()) + first, variables + first,
                 (end - first) * kFloatBytes, /*after=*/nullptr);
  variables_under_way_ = true;
  staged_end_ = end;
}

template <typename T>
void DeviceInputs<T>::AwaitStagedVariables() {
  device_.RecordUpload(variables_uploaded_.get());
  device_.ComputeAfter(variables_uploaded_.get());
  variables_under_way_ = false;
}

template <typename T>
void DeviceInputs<T>::UploadVariables(const float* variables, int64_t elements) {
  // It would write to the same buffer.
  if (variables_under_way_) AwaitStagedVariables();
  staged_vector_ = nullptr;
  device_.CopyToDevice(buffers_.variables->data(), variables, elements * kFloatBytes);
}

template <typename T>
void DeviceInputs<T>::StageImages(const PackedImages& packed_images) {
  CancelImages();
  if (!options_.packed_images || packed_images.bytes > buffers_.packed_images->bytes()) return;
  device_.Upload(buffers_.packed_images->data(), packed_images.data, packed_images.bytes,
                 images_were_read_ ? images_read_.get() : nullptr);
  device_.RecordUpload(images_uploaded_.get());
  images_were_uploaded_ = true;
  staged_images_ = packed_images;
}

template <typename T>
void DeviceInputs<T>::CancelImages() {
  if (staged_images_.data != nullptr) device_.Wait(images_uploaded_.get()).IgnoreError();
  staged_images_ = {};
}

template <typename T>
absl::StatusOr<bool> DeviceInputs<T>::UploadBatch(const ImageBatch<float>& batch, bool with_targets,
                                                  uint64_t dropout_seed) {
  bool moved = false;
  if (with_targets && spec_.detection.has_value()) {
    PP_ASSIGN_OR_RETURN(moved, UploadObjects(batch));
  } else if (with_targets) {
    std::memcpy(buffers_.small.on_host<char>(DeviceBuffers::kLabelsAt), batch.labels,
                batch.samples * sizeof(int32_t));
  }
  *buffers_.small.on_host<uint64_t>(DeviceBuffers::kSeedAt) = dropout_seed;
  device_.CopyToDevice(buffers_.small.device->data(), buffers_.small.host->data(),
                       buffers_.small_bytes());
  if (options_.packed_images) {
    UploadImages(batch);
  } else {
    UploadFloatImages(batch);
  }
  return moved;
}

template <typename T>
absl::StatusOr<bool> DeviceInputs<T>::UploadObjects(const ImageBatch<float>& batch) {
  objects_.Assign(batch.objects, batch.samples);
  const int64_t bytes = static_cast<int64_t>(objects_.objects.size() * sizeof(LabeledBox));
  PP_ASSIGN_OR_RETURN(const bool moved, buffers_.GrowObjects(bytes));
  if (bytes > 0) {
    std::memcpy(buffers_.objects.host->data(), objects_.objects.data(), bytes);
    device_.CopyToDevice(buffers_.objects.device->data(), buffers_.objects.host->data(), bytes);
  }
  std::memcpy(buffers_.small.on_host<char>(buffers_.first_object_at()), objects_.first.data(),
              objects_.first.size() * sizeof(int32_t));
  return moved;
}

template <typename T>
void DeviceInputs<T>::UploadFloatImages(const ImageBatch<float>& batch) {
  const int64_t size = batch.samples * spec_.input.num_elements();
  const StagedMemory& images = buffers_.float_images;
  std::memcpy(images.host->data(), batch.images, size * kFloatBytes);
  device_.CopyToDevice(images.device->data(), images.host->data(), size * kFloatBytes);
  if (buffers_.typed_images == nullptr) return;
  operators_.ConvertFromFloat(size, images.on_device<float>(),
                              static_cast<T*>(buffers_.typed_images->data()));
}

template <typename T>
void DeviceInputs<T>::UploadImages(const ImageBatch<float>& batch) {
  // Needed even if other images were staged: their upload writes to the same buffer.
  if (images_were_uploaded_) device_.ComputeAfter(images_uploaded_.get());
  if (staged_images_.data != batch.packed_images.data ||
      staged_images_.bytes < batch.packed_images.bytes) {
    device_.CopyToDevice(buffers_.packed_images->data(), batch.packed_images.data,
                         batch.packed_images.bytes);
  }
  operators_.SampleImages(image_input_, batch.samples, buffers_.packed_images->data(),
                          static_cast<T*>(buffers_.typed_images->data()));
  device_.RecordCompute(images_read_.get());
  images_were_read_ = true;
  staged_images_ = {};
}

template <typename T>
NetworkBatch<T> DeviceInputs<T>::BatchOnDevice(int64_t samples) const {
  NetworkBatch<T> batch;
  const Memory& images =
      buffers_.typed_images != nullptr ? *buffers_.typed_images : *buffers_.float_images.device;
  batch.images = static_cast<const T*>(images.data());
  batch.samples = samples;
  batch.labels = buffers_.small.on_device<int32_t>(DeviceBuffers::kLabelsAt);
  if (spec_.detection.has_value()) {
    batch.objects = buffers_.objects.on_device<LabeledBox>();
    batch.first_object = buffers_.small.on_device<int32_t>(buffers_.first_object_at());
  }
  return batch;
}

template class DeviceInputs<float>;
template class DeviceInputs<Bfloat16>;

}  // namespace pushpull
