// How the numbers of a gradient lie on the wire: the sender encodes, the server checks and sums
// them as float32.
#ifndef PUSHPULL_COMMON_GRADIENT_ENCODING_H_
#define PUSHPULL_COMMON_GRADIENT_ENCODING_H_

#include <cstdint>
#include <optional>

#include "absl/types/span.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

// Bytes of an element; none for an encoding that this build does not know.
std::optional<int64_t> BytesPerElement(ps::GradientEncoding encoding);

// To the nearest bfloat16, ties to even. A NaN stays one; what is beyond bfloat16's range becomes
// infinite, as an infinity does. `to` has as many elements as `from`.
void EncodeBfloat16(absl::Span<const float> from, absl::Span<uint16_t> to);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_GRADIENT_ENCODING_H_
