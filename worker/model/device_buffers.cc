// Tested by tests/worker/model/device_runner_test.cc.
#include "worker/model/device_buffers.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr int64_t kObjectsPerSample = 16;  // average that the initial buffer has room for

}  // namespace

DeviceBufferSizes::DeviceBufferSizes(const NetworkSpec& spec, int64_t total_elements,
                                     const RunnerOptions& options, int64_t element_bytes) {
  variables = total_elements * kFloatBytes;
  gradient = options.training ? variables : 0;
  const int64_t image_elements = options.max_batch * spec.input.num_elements();
  packed_images = options.packed_images;
  images = packed_images ? ImageBlockBytes(options.max_batch, spec.input.num_elements())
                         : image_elements * kFloatBytes;
  converts = element_bytes != kFloatBytes;
  typed_images = converts || packed_images ? image_elements * element_bytes : 0;
  // Rounded up to 256 bytes, so that first_object, which follows the labels, is aligned.
  labels = ((options.max_batch + 1) * static_cast<int64_t>(sizeof(int32_t)) + 255) / 256 * 256;
  objects = spec.detection.has_value()
                ? options.max_batch * kObjectsPerSample * static_cast<int64_t>(sizeof(LabeledBox))
                : 0;
  for (const int node : OutputNodes(spec)) {
    outputs += options.max_batch * spec.nodes[node].shape.num_elements() * kFloatBytes;
  }
}

std::vector<int64_t> DeviceBufferSizes::DeviceBlocks() const {
  const int64_t small = DeviceBuffers::kLabelsAt + 2 * labels;
  return {variables, gradient, images, typed_images, small, objects, converts ? outputs : 0};
}

absl::Status DeviceBuffers::AllocateOnDevice() {
  const std::vector<int64_t> blocks = sizes_.DeviceBlocks();
  std::unique_ptr<Memory>* const targets[] = {
      &variables,     &gradient,     sizes_.packed_images ? &packed_images : &float_images.device,
      &typed_images,  &small.device, &objects.device,
      &outputs.device};
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i] == 0) continue;
    PP_ASSIGN_OR_RETURN(*targets[i], device_.Allocate(blocks[i]));
  }
  return absl::OkStatus();
}

absl::Status DeviceBuffers::AllocateOnHost() {
  const std::pair<StagedMemory*, int64_t> wanted[] = {
      {&float_images, sizes_.packed_images ? 0 : sizes_.images},
      {&small, small_bytes()},
      {&objects, sizes_.objects},
      {&outputs, sizes_.outputs}};
  for (const auto& [memory, bytes] : wanted) {
    if (bytes == 0) continue;
    PP_ASSIGN_OR_RETURN(memory->host, device_.AllocatePinned(bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> DeviceBuffers::GrowObjects(int64_t bytes) {
  if (bytes <= objects.host->bytes() && bytes <= objects.device->bytes()) return false;
  const int64_t room = 2 * bytes;
  StagedMemory larger;
  absl::StatusOr<std::unique_ptr<Memory>> on_device = device_.Allocate(room);
  if (absl::IsResourceExhausted(on_device.status())) {
    return NoRoomForObjects(on_device.status(), room);
  }
  PP_ASSIGN_OR_RETURN(larger.device, std::move(on_device));
  PP_ASSIGN_OR_RETURN(larger.host, device_.AllocatePinned(room));
  objects = std::move(larger);
  return true;
}

absl::Status DeviceBuffers::NoRoomForObjects(const absl::Status& error, int64_t room) const {
  const bool may_become_free = device_.free_bytes_without_others() >= room;
  absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
      error.message(), "; the memory is for the boxes of this batch, the largest number so far; ",
      may_become_free
          ? "other processes, such as another clone, hold part of the GPU's memory: try again later"
          : "lower train_config.batch_size or eval_config.batch_size"));
  if (may_become_free) status.SetPayload(kMayBecomeFreeUrl, absl::Cord("yes"));
  return status;
}

}  // namespace pushpull
