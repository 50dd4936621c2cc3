// Encodings of a gradient on the wire: float32, or bfloat16 rounded by the sender.
#ifndef PUSHPULL_COMMON_WIRE_GRADIENT_ENCODING_H_
#define PUSHPULL_COMMON_WIRE_GRADIENT_ENCODING_H_

#include <cstdint>
#include <optional>

#include "protos/parameter_server.pb.h"

namespace pushpull {

// Returns nullopt for an encoding that this build does not know.
std::optional<int64_t> BytesPerElement(ps::GradientEncoding encoding);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRADIENT_ENCODING_H_
