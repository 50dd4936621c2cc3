// Checks the values of train_config.data_augmentation_options. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_AUGMENTATION_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_AUGMENTATION_CHECKS_H_

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Adds a problem to `checker` for each empty step, each value out of range, and a random_shift that
// is not the last step. Unsupported steps are left to CheckSchemaMarks.
void CheckAugmentation(const config::TrainConfig& train, FieldChecker* checker);

// Adds a problem for each random_shift. That step moves the pixels of the network's input and
// leaves the boxes where they are, so a detector cannot use it.
void CheckAugmentationOfBoxes(const config::TrainConfig& train, FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_AUGMENTATION_CHECKS_H_
