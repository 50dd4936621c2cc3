// The checks of model.ssd.
#ifndef PUSHPULL_COMMON_CONFIG_SSD_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_SSD_CHECKS_H_

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Adds everything that keeps the detector from being built or trained: missing messages, values out
// of range, settings that contradict each other. Unsupported fields are found by the schema's
// marks.
void CheckSsd(const config::Ssd& ssd, FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_SSD_CHECKS_H_
