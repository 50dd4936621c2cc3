// Checks of the optimizer, its learning-rate schedule and gradient clipping. OptimizerSpec
// (common/optimizer/optimizer.h) takes only what has passed them. Thread-safe functions; each adds
// the problems that it finds to `checker`.
#ifndef PUSHPULL_COMMON_CONFIG_OPTIMIZER_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_OPTIMIZER_CHECKS_H_

#include "absl/strings/string_view.h"

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Checks train_config.optimizer with its learning rate, gradient_clipping_by_norm and
// gradient_clipping_by_global_norm.
void CheckOptimizer(const config::TrainConfig& config, FieldChecker* checker);

// Checks one learning_rate message. `field` is its path from the top of the config.
void CheckLearningRate(const config::LearningRate& rate, absl::string_view field,
                       FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_OPTIMIZER_CHECKS_H_
