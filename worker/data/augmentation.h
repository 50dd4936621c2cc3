// Random changes of training images: drawn from (seed, position of the sample in the run), so they
// do not depend on how a batch is divided into slots, nor on threads.
#ifndef PUSHPULL_WORKER_DATA_AUGMENTATION_H_
#define PUSHPULL_WORKER_DATA_AUGMENTATION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"

#include "protos/pipeline.pb.h"
#include "worker/data/augment/augmentation_step.h"
#include "worker/data/augment/editable_image.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"

namespace pushpull {

// What to draw from; the default changes nothing. Copies share the steps.
struct AugmentationSpec {
  // On the decoded image, in the config's order.
  std::vector<std::shared_ptr<const AugmentationStep>> steps;
  // On the network's input, after the resize; each axis uniform in [-max, max].
  int max_shift_pixels = 0;
};

// Reads train_config.data_augmentation_options. INVALID_ARGUMENT names a step that is unknown or
// out of range, a random_shift listed twice or before another step.
absl::StatusOr<AugmentationSpec> ParseAugmentation(
    const google::protobuf::RepeatedPtrField<config::PreprocessingStep>& steps);

// Runs the steps. Each draws from a stream of its own, so that a change of one leaves the others'
// draws as they were. A pure function of its arguments.
void Augment(const AugmentationSpec& spec, uint64_t seed, int64_t position, EditableImage* image,
             std::vector<Box>* boxes);

// A pure function of its arguments.
Shift DrawShift(const AugmentationSpec& spec, uint64_t seed, int64_t position);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENTATION_H_
