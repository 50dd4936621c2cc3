// Finds values that are not finite among floats, or among the upper halves of floats. Thread-safe.
#ifndef PUSHPULL_COMMON_WIRE_CODECS_NON_FINITE_H_
#define PUSHPULL_COMMON_WIRE_CODECS_NON_FINITE_H_

#include <cstdint>

namespace pushpull {

// Returns the index of the first non-finite element, or `count` if there is none. Bits: uint32_t
// for float32, uint16_t for bfloat16. `data` may lie at any address.
template <typename Bits>
int64_t FindNonFiniteElement(const char* data, int64_t count);
template <>
int64_t FindNonFiniteElement<uint32_t>(const char* data, int64_t count);
template <>
int64_t FindNonFiniteElement<uint16_t>(const char* data, int64_t count);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_CODECS_NON_FINITE_H_
