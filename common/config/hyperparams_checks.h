// The checks of a conv_hyperparams message, shared by all models.
#ifndef PUSHPULL_COMMON_CONFIG_HYPERPARAMS_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_HYPERPARAMS_CHECKS_H_

#include <string>

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

enum class BatchNormUse { kRequired, kOptional };

// `field` is the message's path from the top of the config.
void CheckHyperparams(const config::Hyperparams& hyperparams, const std::string& field,
                      BatchNormUse batch_norm, FieldChecker* checker);

void CheckInitializer(const config::WeightInitializer& initializer, const std::string& field,
                      FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_HYPERPARAMS_CHECKS_H_
