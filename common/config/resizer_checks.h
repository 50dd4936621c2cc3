// Checks an image_resizer message, shared by all models. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_RESIZER_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_RESIZER_CHECKS_H_

#include <string>

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Limits on each side of the network's input, in pixels, inclusive.
struct SideLimits {
  int minimum = 1;
  int maximum = 1;
};

// Adds the problems of `resizer` to `checker`. `field` is its path from the top of the config.
void CheckImageResizer(const config::ImageResizer& resizer, const std::string& field,
                       const SideLimits& limits, FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_RESIZER_CHECKS_H_
