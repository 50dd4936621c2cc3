// Checks the values of model.ssd. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_SSD_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_SSD_CHECKS_H_

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Adds every problem to `checker` that prevents the detector from being built or trained: missing
// messages, values out of range, and settings that contradict each other. Unsupported fields are
// left to CheckSchemaMarks.
void CheckSsd(const config::Ssd& ssd, FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_SSD_CHECKS_H_
