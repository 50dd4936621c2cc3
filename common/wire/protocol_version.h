// The version of the wire protocol. Raise it with every change that an older peer would misread.
#ifndef PUSHPULL_COMMON_WIRE_PROTOCOL_VERSION_H_
#define PUSHPULL_COMMON_WIRE_PROTOCOL_VERSION_H_

#include <cstdint>

namespace pushpull {

inline constexpr uint32_t kProtocolVersion = 10;

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_PROTOCOL_VERSION_H_
