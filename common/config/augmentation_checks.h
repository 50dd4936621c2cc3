// Checks the values of train_config.data_augmentation_options. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_AUGMENTATION_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_AUGMENTATION_CHECKS_H_

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Adds a problem to `checker` for each empty step, each value out of range, and a random_shift that
// is not the last step. Unsupported steps are left to CheckSchemaMarks.
void CheckAugmentation(const config::TrainConfig& train, FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_AUGMENTATION_CHECKS_H_
