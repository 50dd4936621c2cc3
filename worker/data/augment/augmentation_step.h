// One entry of train_config.data_augmentation_options: a random change to a decoded image and its
// boxes, as the TensorFlow Object Detection API defines it.
#ifndef PUSHPULL_WORKER_DATA_AUGMENT_AUGMENTATION_STEP_H_
#define PUSHPULL_WORKER_DATA_AUGMENT_AUGMENTATION_STEP_H_

#include <memory>
#include <vector>

#include "common/base/random.h"
#include "protos/pipeline.pb.h"
#include "worker/data/augment/editable_image.h"
#include "worker/data/image_source.h"

namespace pushpull {

// Immutable; thread-safe.
class AugmentationStep {
 public:
  virtual ~AugmentationStep() = default;

  // Changes the image and its boxes in place. The result depends only on the arguments. Box edges
  // are shares of the image's sides before and after; a step that crops may drop boxes, even all.
  virtual void Apply(CounterRandom* random, EditableImage* image,
                     std::vector<Box>* boxes) const = 0;
};

// Makes the step that `step`, a part of a valid config, describes. It may not be random_shift,
// which works on the network's input and not on the decoded image (see DrawShift in
// augmentation.h).
std::unique_ptr<AugmentationStep> MakeAugmentationStep(const config::PreprocessingStep& step);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_AUGMENT_AUGMENTATION_STEP_H_
