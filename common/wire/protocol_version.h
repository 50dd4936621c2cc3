// The version of the wire protocol, and the error of a peer that speaks another one.
#ifndef PUSHPULL_COMMON_WIRE_PROTOCOL_VERSION_H_
#define PUSHPULL_COMMON_WIRE_PROTOCOL_VERSION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// Raise it with every change that an older peer would misread.
inline constexpr uint32_t kProtocolVersion = 10;

// Checks that `peer` speaks the protocol of this program, which the message calls `self`, such as
// "the server". FAILED_PRECONDITION: it speaks another version; the message names both versions and
// says which of the two programs is older and must be upgraded. Pure function.
absl::Status CheckProtocolVersion(absl::string_view peer, uint32_t version_of_peer,
                                  absl::string_view self = "this program");

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_PROTOCOL_VERSION_H_
