// Answers of the server as JSON for scripts.
#ifndef PUSHPULL_PS_SERVER_PSCTL_REPLY_JSON_H_
#define PUSHPULL_PS_SERVER_PSCTL_REPLY_JSON_H_

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

// One line, proto3's JSON with the field names of the .proto file: every field of the message is
// there, 64-bit integers are strings. A top-level run_id is hex, not base64. INTERNAL: not
// representable.
absl::StatusOr<std::string> ReplyToJson(const google::protobuf::Message& reply);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_PSCTL_REPLY_JSON_H_
