// Checks the fields that a config sets against the options (unsupported), (no_effect) and
// (unsupported_value) in protos/pipeline.proto, and rejects placeholder and remote paths in
// strings. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_SCHEMA_MARKS_H_
#define PUSHPULL_COMMON_CONFIG_SCHEMA_MARKS_H_

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "common/config/field_checker.h"

namespace pushpull {

// Visits all set fields of `message` and the messages in it. Adds a problem to `checker` for each
// unsupported field or value; an unsupported field that is set to its default is no problem.
// Appends one sentence to `warnings` for each field that has no effect.
void CheckSchemaMarks(const google::protobuf::Message& message, FieldChecker* checker,
                      std::vector<std::string>* warnings);

// Returns "one of A, B, C": the fields of the oneof that are not (unsupported), for a message.
std::string SupportedFields(const google::protobuf::OneofDescriptor& oneof);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_SCHEMA_MARKS_H_
