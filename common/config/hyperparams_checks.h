// Checks of conv_hyperparams messages, shared by all models. Thread-safe functions; each adds the
// problems that it finds to `checker`.
#ifndef PUSHPULL_COMMON_CONFIG_HYPERPARAMS_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_HYPERPARAMS_CHECKS_H_

#include <string>

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

enum class BatchNormUse { kRequired, kOptional };

// Checks the ranges of the L2 weight, the initializer and batch_norm. With kRequired an absent
// batch_norm is a problem too. `field` is the path of the message from the top of the config.
void CheckHyperparams(const config::Hyperparams& hyperparams, const std::string& field,
                      BatchNormUse batch_norm, FieldChecker* checker);

// Checks the deviation or factor of the initializer, if one is set.
void CheckInitializer(const config::WeightInitializer& initializer, const std::string& field,
                      FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_HYPERPARAMS_CHECKS_H_
