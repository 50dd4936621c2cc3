// Bfloat16 is the upper half of a float: a sign, 8 bits of exponent and 7 bits of mantissa. It is a
// storage type only; arithmetic is done in float.
#ifndef PUSHPULL_KERNELS_BFLOAT16_H_
#define PUSHPULL_KERNELS_BFLOAT16_H_

#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"

namespace pushpull {

struct Bfloat16 {
  uint16_t bits;
};

PUSHPULL_HOST_DEVICE inline float ToFloat(Bfloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  memcpy(&result, &bits, sizeof(result));
  return result;
}

PUSHPULL_HOST_DEVICE inline float ToFloat(float value) { return value; }

// Rounds to nearest, ties to even. A NaN stays a NaN (made quiet).
PUSHPULL_HOST_DEVICE inline Bfloat16 ToBfloat16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  }
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return {static_cast<uint16_t>(bits >> 16)};
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_BFLOAT16_H_
