// Checks where the config places the anchors of a detector. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_ANCHOR_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_ANCHOR_CHECKS_H_

#include <string>

#include "common/config/field_checker.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Adds the problems of the strides and the offsets to `checker`. Both are in pixels of the
// network's input. Either may be absent; if it is there, it needs a height and a width for each
// layer. `field` is the name of the message.
void CheckAnchorPlaces(const config::SsdAnchorGenerator& anchors, const std::string& field,
                       FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_ANCHOR_CHECKS_H_
