// The register tile of the matrix products in gemm.cc, and the four ways to multiply. Included
// like simd.h, once for each instruction set.
#if defined(PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_
#undef PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_
#else
#define PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/panels.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::CappedTag<float, 16>;
using Narrow = hn::CappedTag<float, kVector>;
constexpr int kWideLanes = std::min<int>(HWY_LANES(float), 16);

// The first lanes of a wide vector, which has 4, 8 or 16.
template <typename Tag, typename V>
HWY_INLINE hn::Vec<Tag> LowerLanes(Tag tag, V wide) {
  if constexpr (kWideLanes <= kVector) {
    return wide;
  } else {
    return hn::LowerHalf(tag, wide);
  }
}

// How a product multiplies. Each of the four has
//   Number            what the operands are made of
//   kDepth            how many neighbours in the sum are multiplied at once
//   kStep             how many of them the product takes at a time; of two that are not multiplied
//                     at once, the second one first
//   Operand<Tag>      a vector of them: kDepth numbers per lane
//   Load, Broadcast   read a vector of them, or one for all lanes
//   Lower             the lower lanes of a wide one
//   MulAdd            returns sum + a * b for each lane
struct FloatMath {
  using Number = float;
  static constexpr int kDepth = 1;
  static constexpr int kStep = 1;
  template <typename Tag>
  using Operand = hn::Vec<Tag>;
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Load(Tag tag, const float* p) {
    return hn::LoadU(tag, p);
  }
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Broadcast(Tag tag, const float* p) {
    return hn::Set(tag, *p);
  }
  static HWY_INLINE Operand<Narrow> Lower(Operand<Wide> wide) { return LowerLanes(Narrow(), wide); }
  template <typename Tag>
  static HWY_INLINE hn::Vec<Tag> MulAdd(Tag, Operand<Tag> a, Operand<Tag> b, hn::Vec<Tag> sum) {
    return hn::MulAdd(a, b, sum);
  }
};

// WideBfloat16, as floats. The product of two is exact in a float. Needs FlushDenormals.
struct WideMath : FloatMath {
  static constexpr int kStep = 2;
};

template <typename Tag>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<Tag>> LoadPairs(Tag, const Bfloat16* p) {
  return hn::LoadU(hn::RebindToUnsigned<Tag>(), reinterpret_cast<const uint32_t*>(p));
}

template <typename Tag>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<Tag>> BroadcastPair(Tag, const Bfloat16* p) {
  uint32_t pair;
  std::memcpy(&pair, p, sizeof(pair));
  return hn::Set(hn::RebindToUnsigned<Tag>(), pair);
}

// Pairs of Bfloat16 on a CPU without instructions for them: the two numbers become floats, whose
// product is exact in a float. Needs FlushDenormals.
struct WidenedPairMath {
  using Number = Bfloat16;
  static constexpr int kDepth = 2;
  static constexpr int kStep = 2;
  template <typename Tag>
  struct Operand {
    hn::Vec<Tag> first, second;
  };
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Split(Tag tag, hn::Vec<hn::RebindToUnsigned<Tag>> pairs) {
    const auto upper = hn::Set(hn::RebindToUnsigned<Tag>(), 0xffff0000);
    return {hn::BitCast(tag, hn::ShiftLeft<16>(pairs)), hn::BitCast(tag, hn::And(pairs, upper))};
  }
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Load(Tag tag, const Bfloat16* p) {
    return Split(tag, LoadPairs(tag, p));
  }
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Broadcast(Tag tag, const Bfloat16* p) {
    return Split(tag, BroadcastPair(tag, p));
  }
  static HWY_INLINE Operand<Narrow> Lower(Operand<Wide> wide) {
    return {LowerLanes(Narrow(), wide.first), LowerLanes(Narrow(), wide.second)};
  }
  template <typename Tag>
  static HWY_INLINE hn::Vec<Tag> MulAdd(Tag, Operand<Tag> a, Operand<Tag> b, hn::Vec<Tag> sum) {
    return hn::MulAdd(a.first, b.first, hn::MulAdd(a.second, b.second, sum));
  }
};

#if HWY_TARGET == HWY_AVX3
// Pairs of Bfloat16 with the instruction of AVX512-BF16. Highway 1.0.3 has no target for it, and
// the compiler offers it only to functions that are compiled for it as a whole.
struct PairMath {
  using Number = Bfloat16;
  static constexpr int kDepth = 2;
  static constexpr int kStep = 2;
  template <typename Tag>
  using Operand = hn::Vec<hn::RebindToUnsigned<Tag>>;
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Load(Tag tag, const Bfloat16* p) {
    return LoadPairs(tag, p);
  }
  template <typename Tag>
  static HWY_INLINE Operand<Tag> Broadcast(Tag tag, const Bfloat16* p) {
    return BroadcastPair(tag, p);
  }
  static HWY_INLINE Operand<Narrow> Lower(Operand<Wide> wide) {
    return LowerLanes(hn::RebindToUnsigned<Narrow>(), wide);
  }
  template <typename Tag>
  static HWY_INLINE hn::Vec<Tag> MulAdd(Tag, Operand<Tag> a, Operand<Tag> b, hn::Vec<Tag> sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
    return sum;
  }
};
#endif

// Calls add(i) for the numbers i of a sum of `count` of them, in the order in which the product
// adds them. With pairs, i is the first of two.
template <typename Math, typename F>
HWY_INLINE void ForEachStep(int64_t count, F add) {
#pragma GCC unroll 4
  for (int64_t i = 0; i < count; i += Math::kStep) {
    if constexpr (Math::kStep > Math::kDepth) add(i + 1);
    add(i);
  }
}

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

// The sums of one tile of the result, kRows x kWidth, held in registers: per row the wide vectors
// that fit, and for the rest a vector of 8 (24 columns with AVX-512 only, or 8). The loops over a
// tile must be unrolled by pragma: at -O2 the sums would otherwise live in memory.
template <typename Math, int kRows, int kWidth>
class Tile {
 public:
  using Number = typename Math::Number;

  HWY_INLINE Tile() {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kWides; ++v) wide_[i][v] = hn::Zero(Wide());
      if constexpr (kHasNarrow) narrow_[i] = hn::Zero(Narrow());
    }
  }

  // sum[i][j] = c[i * ldc + j], to go on with sums that were stored.
  HWY_INLINE void LoadFrom(const float* c, int64_t ldc) {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kWides; ++v) {
        wide_[i][v] = hn::LoadU(Wide(), c + i * ldc + v * kWideLanes);
      }
      if constexpr (kHasNarrow) {
        narrow_[i] = hn::LoadU(Narrow(), c + i * ldc + kWides * kWideLanes);
      }
    }
  }

  // One step of the reduction, an outer product: sum[i] += a[i * a_stride] * b[0 .. kWidth), where
  // an entry of a or b is kDepth numbers. Loads the vectors of b and broadcasts kRows entries of a.
  // A core does two loads and two multiply-adds per cycle, and a tile has about as many of these as
  // of those, so the multiply-adds are the bound while both operands are in the L1 cache.
  HWY_INLINE void Add(const Number* a, int64_t a_stride, const Number* b) {
    typename Math::template Operand<Wide> wide_b[kWides + 1];
    typename Math::template Operand<Narrow> narrow_b;
#pragma GCC unroll 8
    for (int v = 0; v < kWides; ++v) {
      wide_b[v] = Math::Load(Wide(), b + v * kWideLanes * Math::kDepth);
    }
    if constexpr (kHasNarrow) {
      narrow_b = Math::Load(Narrow(), b + kWides * kWideLanes * Math::kDepth);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      if constexpr (kWides == 0) {
        const auto narrow_a = Math::Broadcast(Narrow(), a + i * a_stride);
        narrow_[i] = Math::MulAdd(Narrow(), narrow_a, narrow_b, narrow_[i]);
      } else {
        const auto wide_a = Math::Broadcast(Wide(), a + i * a_stride);
#pragma GCC unroll 8
        for (int v = 0; v < kWides; ++v) {
          wide_[i][v] = Math::MulAdd(Wide(), wide_a, wide_b[v], wide_[i][v]);
        }
        if constexpr (kHasNarrow) {
          narrow_[i] = Math::MulAdd(Narrow(), Math::Lower(wide_a), narrow_b, narrow_[i]);
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
        StoreVector(Wide(), wide_[i][v], c + i * ldc + v * kWideLanes, store);
      }
      if constexpr (kHasNarrow) {
        StoreVector(Narrow(), narrow_[i], c + i * ldc + kWides * kWideLanes, store);
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

  hn::Vec<Wide> wide_[kRows][kWides + 1];  // no array of length 0
  hn::Vec<Narrow> narrow_[kRows];
};

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_PRODUCT_TILE_H_
