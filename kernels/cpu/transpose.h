// Transposes matrices of 32-bit numbers in registers. Included like simd.h, once for each
// instruction set.
#if defined(PUSHPULL_KERNELS_CPU_TRANSPOSE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_TRANSPOSE_H_
#undef PUSHPULL_KERNELS_CPU_TRANSPOSE_H_
#else
#define PUSHPULL_KERNELS_CPU_TRANSPOSE_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The squares that are transposed in registers have as many rows as a vector of at most 256 bits.
using Square = hn::CappedTag<uint32_t, 8>;
constexpr int64_t kSquare = HWY_LANES(uint32_t) < 8 ? HWY_LANES(uint32_t) : 8;

// Transposes a square of 32-bit numbers: row i of `from` (at i * stride) becomes column i of `to`
// (rows are `width` apart). Rounds of shuffles swap pairs, then fours, then, with 8 lanes, the
// halves of 128 bits: 24 shuffles for 8 loads and 8 stores, so the shuffle port of many cores is
// the likely bound. Reading the columns one by one would take 64 scalar loads instead.
HWY_INLINE void TransposeSquare(const uint32_t* from, int64_t stride, uint32_t* to, int64_t width) {
  const Square d;
  const hn::Repartition<uint64_t, Square> d64;
  using Row = hn::Vec<Square>;
  Row r[kSquare], t[kSquare];
#pragma GCC unroll 8
  for (int i = 0; i < kSquare; ++i) r[i] = hn::LoadU(d, from + i * stride);
#pragma GCC unroll 4
  for (int i = 0; i < kSquare; i += 2) {
    t[i] = hn::InterleaveLower(d, r[i], r[i + 1]);
    t[i + 1] = hn::InterleaveUpper(d, r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < kSquare; i += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const auto a = hn::BitCast(d64, t[i + j]), b = hn::BitCast(d64, t[i + j + 2]);
      r[i + 2 * j] = hn::BitCast(d, hn::InterleaveLower(d64, a, b));
      r[i + 2 * j + 1] = hn::BitCast(d, hn::InterleaveUpper(d64, a, b));
    }
  }
  if constexpr (kSquare == 8) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      hn::StoreU(hn::ConcatLowerLower(d, r[i + 4], r[i]), d, to + i * width);
      hn::StoreU(hn::ConcatUpperUpper(d, r[i + 4], r[i]), d, to + (i + 4) * width);
    }
  } else {
#pragma GCC unroll 4
    for (int i = 0; i < kSquare; ++i) hn::StoreU(r[i], d, to + i * width);
  }
}

// to[columns, width] = the transpose of from[valid, columns], with zeros from column `valid` on.
// Rows of `from` are `stride` numbers apart, and `width` is a multiple of 8. All numbers have 32
// bits, and may be pairs of 16 bits each.
inline void Transpose(const uint32_t* from, int64_t stride, int64_t columns, int64_t valid,
                      int64_t width, uint32_t* to) {
  for (int64_t i = 0; i < width; i += kSquare) {
    int64_t c = 0;
    if (i + kSquare <= valid) {
      for (; c + kSquare <= columns; c += kSquare) {
        TransposeSquare(from + i * stride + c, stride, to + c * width + i, width);
      }
    }
    for (; c < columns; ++c) {
      for (int64_t j = i; j < i + kSquare; ++j) {
        to[c * width + j] = j < valid ? from[j * stride + c] : 0;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_TRANSPOSE_H_
