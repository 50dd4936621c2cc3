// Refuses numbers in a config that are not finite. protobuf text has words for them (nan, inf), and
// a number that is too large for its type becomes one. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_FINITE_CHECK_H_
#define PUSHPULL_COMMON_CONFIG_FINITE_CHECK_H_

#include "google/protobuf/message.h"

#include "common/config/field_checker.h"

namespace pushpull {

// Visits all set fields of `message` and the messages in it. Adds a problem to `checker` for each
// value that is not finite, but not if `checker` has a problem of this field already. The checks of
// single fields come first, because their problems say which numbers are valid. Leaves out fields
// that have (no_effect).
void CheckFinite(const google::protobuf::Message& message, FieldChecker* checker);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_FINITE_CHECK_H_
