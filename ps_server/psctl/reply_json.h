// ReplyToJson formats replies of the server as JSON for scripts.
#ifndef PUSHPULL_PS_SERVER_PSCTL_REPLY_JSON_H_
#define PUSHPULL_PS_SERVER_PSCTL_REPLY_JSON_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

// Returns one line: proto3 JSON with the field names of the .proto file. Primitive fields are
// present even if they have default values. 64-bit integers are strings. A top-level run_id is
// hex instead of base64. INTERNAL: the reply cannot be written as JSON. Thread-safe.
absl::StatusOr<std::string> ReplyToJson(const google::protobuf::Message& reply);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_PSCTL_REPLY_JSON_H_
