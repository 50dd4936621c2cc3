// Checks a config of an external model (model.external), whose variables, data and loss only the
// programs of its clones know. Thread-safe functions.
#ifndef PUSHPULL_COMMON_CONFIG_EXTERNAL_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_EXTERNAL_CHECKS_H_

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Adds a problem for each field that has no meaning with an external model: data, augmentation,
// warm start and evaluation. The optimizer and the other fields of train_config are left to the
// checks for any model.
void CheckExternal(const config::TrainEvalPipelineConfig& config, FieldChecker* checker);

// Adds the problem that this program has to know the network.
void RefuseExternal(const config::External& external, FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_EXTERNAL_CHECKS_H_
