// Random changes of training images (data augmentation).
//
// The changes depend only on the seed and on the position of the sample in the run, not on the
// number of replicas that a batch is divided into, nor on threads.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_AUGMENTATION_H_
#define PUSHPULL_WORKER_DATA_AUGMENTATION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "google/protobuf/repeated_field.h"

#include "protos/pipeline.pb.h"
#include "worker/data/augment/augmentation_step.h"
#include "worker/data/augment/editable_image.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"

namespace pushpull {

// The configured augmentation; the default changes nothing. Copies share the steps.
struct AugmentationSpec {
  // Applied to the decoded image, in this order, which is the config's.
  std::vector<std::shared_ptr<const AugmentationStep>> steps;
  // After the resize, the network's input moves along each axis by a number of pixels drawn
  // uniformly from [-max_shift_pixels, max_shift_pixels].
  int max_shift_pixels = 0;
};

// Reads train_config.data_augmentation_options of a valid config.
AugmentationSpec ParseAugmentation(
    const google::protobuf::RepeatedPtrField<config::PreprocessingStep>& steps);

// Applies the steps to the image and its boxes. Step i draws from a random stream that depends on
// i, `seed` and `position` only, so changing the parameters of one step does not change what the
// others draw. The result depends only on the arguments.
void Augment(const AugmentationSpec& spec, uint64_t seed, int64_t position, EditableImage* image,
             std::vector<Box>* boxes);

// Draws the shift of the network's input. The result depends only on the arguments.
Shift DrawShift(const AugmentationSpec& spec, uint64_t seed, int64_t position);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENTATION_H_
