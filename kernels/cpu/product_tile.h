// The register tile of the matrix products in gemm.cc. Included like simd.h, once for each
// instruction set.
#if defined(PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_
#undef PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_
#else
#define PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/product_math.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The rows of a register tile that has `width` columns. There have to be at least 8 to 10
// independent sums to hide the latency of two fused multiply-adds per cycle (4 or 5 cycles each),
// and the sums, one row of b and one number of a have to fit in the registers.
//   AVX2, 16 registers      16 columns: 6 x 2 + 2 + 1 = 15     24 columns: 4 x 3 + 3 + 1 = 16
//   AVX-512, 32 registers   16 columns: 16 x 1 + 1 + 1 = 18    24 columns: 12 x 2 + 2 + 1 = 27
//                           32 columns: 12 x 2 + 2 + 1 = 27
//   NEON, 32 registers      16 columns: 6 x 4 + 4 + 1 = 29     24 columns: 4 x 6 + 6 + 1 = 31
//   SSE4, 16 registers      16 columns: 2 x 4 + 4 + 1 = 13     24 columns: 1 x 6 + 6 + 1 = 13
// With 8 columns AVX2 has only 6 sums and cannot fill the pipeline, which is why Panels avoids
// panels of 8.
constexpr int TileRows(int width) {
  if (HWY_TARGET == HWY_SSE4) return width == 24 ? 1 : width == 16 ? 2 : 4;
  if (kWideLanes == 16) return width >= 24 ? 12 : 16;
  return width == 24 ? 4 : 6;
}

// The sums of one tile of the result, kRows x kWidth, held in registers. Each row is
// kWidth / kWideLanes wide vectors. With AVX-512, 8 and 24 columns leave a rest of 8, which is one
// narrow vector. The loops over a tile must be unrolled by pragma: at -O2 the sums would otherwise
// live in memory.
template <typename Math, int kRows, int kWidth>
class Tile {
 public:
  using Number = typename Math::Number;

  HWY_INLINE Tile() {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kWides; ++v) wide_[i][v] = hn::Zero(WideTag());
      if constexpr (kHasNarrow) narrow_[i] = hn::Zero(NarrowTag());
    }
  }

  // sum[i][j] = c[i * ldc + j], to go on with sums that were stored.
  HWY_INLINE void LoadFrom(const float* c, int64_t ldc) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kWides; ++v) {
        wide_[i][v] = hn::LoadU(WideTag(), c + i * ldc + v * kWideLanes);
      }
      if constexpr (kHasNarrow) {
        narrow_[i] = hn::LoadU(NarrowTag(), c + i * ldc + kWides * kWideLanes);
      }
    }
  }

  // One step of the reduction, an outer product: sum[i] += a[i * a_stride] * b[0 .. kWidth), where
  // an entry of a or b is kDepth numbers. A core does two loads and two multiply-adds per cycle. A
  // tile of r rows of v vectors loads v vectors of b, broadcasts r entries of a and does r * v
  // multiply-adds. So these are the limit while both operands are in the L1 cache. Only 16 columns
  // with AVX-512, 17 loads for 16 multiply-adds, are limited by the loads.
  HWY_INLINE void Add(const Number* a, int64_t a_stride, const Number* b) {
    typename Math::template Operand<WideTag> wide_b[kWides + 1];
    typename Math::template Operand<NarrowTag> narrow_b;
#pragma GCC unroll 8
    for (int v = 0; v < kWides; ++v) {
      wide_b[v] = Math::Load(WideTag(), b + v * kWideLanes * Math::kDepth);
    }
    if constexpr (kHasNarrow) {
      narrow_b = Math::Load(NarrowTag(), b + kWides * kWideLanes * Math::kDepth);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      if constexpr (kWides == 0) {
        const auto narrow_a = Math::Broadcast(NarrowTag(), a + i * a_stride);
        narrow_[i] = Math::MulAdd(NarrowTag(), narrow_a, narrow_b, narrow_[i]);
      } else {
        const auto wide_a = Math::Broadcast(WideTag(), a + i * a_stride);
#pragma GCC unroll 8
        for (int v = 0; v < kWides; ++v) {
          wide_[i][v] = Math::MulAdd(WideTag(), wide_a, wide_b[v], wide_[i][v]);
        }
        if constexpr (kHasNarrow) {
          narrow_[i] = Math::MulAdd(NarrowTag(), Math::Lower(wide_a), narrow_b, narrow_[i]);
        }
      }
    }
  }

  // c[i * ldc + j] = or += sum[i][j].
  HWY_INLINE void StoreTo(float* c, int64_t ldc, Store store) const {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kWides; ++v) {
        StoreVector(WideTag(), wide_[i][v], c + i * ldc + v * kWideLanes, store);
      }
      if constexpr (kHasNarrow) {
        StoreVector(NarrowTag(), narrow_[i], c + i * ldc + kWides * kWideLanes, store);
      }
    }
  }

 private:
  static constexpr int kWides = kWidth / kWideLanes;
  static constexpr bool kHasNarrow = kWidth % kWideLanes != 0;

  template <typename Tag>
  static HWY_INLINE void StoreVector(Tag tag, hn::Vec<Tag> sum, float* c, Store store) {
    hn::StoreU(store == Store::kAdd ? hn::Add(hn::LoadU(tag, c), sum) : sum, tag, c);
  }

  hn::Vec<WideTag> wide_[kRows][kWides + 1];  // no array of length 0
  hn::Vec<NarrowTag> narrow_[kRows];
};

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_
