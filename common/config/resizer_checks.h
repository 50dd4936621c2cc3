// Checks of an image_resizer.
#ifndef PUSHPULL_COMMON_CONFIG_RESIZER_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_RESIZER_CHECKS_H_

#include <string>

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Pixels of a side of the network's input.
struct SideLimits {
  int minimum = 1;
  int maximum = 1;
};

// `field` is the full name of the resizer.
void CheckImageResizer(const config::ImageResizer& resizer, const std::string& field,
                       const SideLimits& limits, FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_RESIZER_CHECKS_H_
