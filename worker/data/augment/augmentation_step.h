// One entry of train_config.data_augmentation_options: a random change of a decoded image and its
// boxes, as the TensorFlow Object Detection API defines it.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_AUGMENTATION_STEP_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_AUGMENTATION_STEP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/random.h"
#include "protos/pipeline.pb.h"
#include "worker/data/augment/editable_image.h"
#include "worker/data/image_source.h"

namespace pushpull {

// Immutable; thread-safe.
class AugmentationStep {
 public:
  virtual ~AugmentationStep() = default;

  // A pure function of its arguments. Boxes stay shares of the image; a step that cuts may drop
  // some or all of them.
  virtual void Apply(CounterRandom* random, EditableImage* image,
                     std::vector<Box>* boxes) const = 0;
};

// The step of the config, without random_shift, which is no step on the decoded image: null for it.
// INVALID_ARGUMENT names `field` and what is wrong in it: a step that is not supported, a value out
// of range, a minimum above its maximum.
absl::StatusOr<std::unique_ptr<AugmentationStep>> MakeAugmentationStep(
    const config::PreprocessingStep& step, const std::string& field);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_AUGMENTATION_STEP_H_
