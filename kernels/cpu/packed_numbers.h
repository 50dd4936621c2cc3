// What the operands of a matrix product are made of once they are packed. P is one of three types:
//
//   float         tensors of floats
//   Bfloat16      tensors of Bfloat16, for the CPU's instructions that multiply them in pairs
//   BfloatAsFloat  tensors of Bfloat16, for a CPU that multiplies floats faster
//
// The last two give the same bits, except in tiles (kernels/cpu/gemm.h).
#ifndef PUSHPULL_KERNELS_CPU_PACKED_NUMBERS_H_
#define PUSHPULL_KERNELS_CPU_PACKED_NUMBERS_H_

#include <cstdint>
#include <type_traits>

#include "kernels/bfloat16.h"

namespace pushpull {

// A float that was rounded to a Bfloat16, so its lower 16 bits are zero.
struct BfloatAsFloat {
  float value;
};

// Returns the numbers as floats one after the other.
inline float* FloatsOf(BfloatAsFloat* numbers) { return reinterpret_cast<float*>(numbers); }
inline const float* FloatsOf(const BfloatAsFloat* numbers) {
  return reinterpret_cast<const float*>(numbers);
}

// The type of the tensors that are packed as P.
template <typename P>
using TensorOf = std::conditional_t<std::is_same_v<P, BfloatAsFloat>, Bfloat16, P>;

// The rows of an operand whose rows are what the product sums over. A product of Bfloat16 or
// BfloatAsFloat takes two of them at a time, so there is a row of zeros after an odd number of
// them.
template <typename P>
constexpr int64_t EvenRows(int64_t rows) {
  return std::is_same_v<P, float> ? rows : (rows + 1) / 2 * 2;
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_PACKED_NUMBERS_H_
