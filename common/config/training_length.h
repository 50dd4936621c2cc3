// Says with which step training ends.
#ifndef PUSHPULL_COMMON_CONFIG_TRAINING_LENGTH_H_
#define PUSHPULL_COMMON_CONFIG_TRAINING_LENGTH_H_

#include <cstdint>

#include "protos/pipeline.pb.h"

namespace pushpull {

// The limits that the pipeline config sets. A limit that is 0 does not count.
struct TrainingLimits {
  uint64_t num_steps = 0;    // train_config.num_steps
  uint32_t num_epochs = 0;   // train_input_reader.num_epochs: passes over the training images
  uint64_t batch_size = 1;   // images of a batch, at least 1: train_config.batch_size
  uint64_t local_steps = 1;  // batches of a step, at least 1: train_config.local_steps
};

// Returns the limits of the config. A batch_size or local_steps of 0, which no valid config has,
// counts as 1.
TrainingLimits LimitsOf(const config::TrainEvalPipelineConfig& config);

// The last step is
//
// clang-format off
//     min(num_steps, ceil(num_epochs * num_images / (batch_size * local_steps)))
// clang-format on
//
// A batch has batch_size images in both modes, whatever the number of replicas is: a synchronous
// step splits its batches over all replicas, and an asynchronous step is one push, whose replica
// has computed whole batches. A synchronous step that goes on without some replicas counts as a
// whole one, because the next step begins with the next batch. Where the last step extends over the
// end of the last epoch, it is trained as a whole.
//
// Only the clones know the number of images, so the length is not known before the first of them
// has registered, unless a checkpoint names the number. Until then num_steps alone counts. Once the
// number is known it does not change while the process lives.
//
// Thread rule: a value.
class TrainingLength {
 public:
  TrainingLength() = default;
  explicit TrainingLength(const TrainingLimits& limits) : limits_(limits) {}

  // Returns whether the length depends on the number of images.
  bool counts_images() const { return limits_.num_epochs > 0; }
  // Returns the number of images, 0 if it is not known.
  uint64_t num_images() const { return num_images_; }
  // Does nothing if the length does not depend on the number, if the number is known already, or if
  // `num_images` is 0. Returns whether the number was taken.
  bool TakeNumImages(uint64_t num_images);

  // Returns the last step, at most 2^63 - 1. 0: there is none, or none is known yet.
  uint64_t last_step() const;
  // Returns whether training ends with this version.
  bool EndsAt(uint64_t version) const;

 private:
  TrainingLimits limits_;
  uint64_t num_images_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_TRAINING_LENGTH_H_
