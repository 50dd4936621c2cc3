// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "common/base/cpu_isa.h"
#include "kernels/cpu/flush_denormals.h"
#include "kernels/cpu/panels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

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

// How a product multiplies. Each of the three has
//   Number            what the operands are made of
//   kDepth            how many neighbours in the sum are multiplied at once
//   Operand<Tag>      a vector of them: kDepth numbers per lane
//   Load, Broadcast   read a vector of them, or one for all lanes
//   Lower             the lower lanes of a wide one
//   MulAdd            returns sum + a * b for each lane
struct FloatMath {
  using Number = float;
  static constexpr int kDepth = 1;
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

// The rows of a register tile that has `width` columns. There have to be at least 8 to 10
// independent sums to hide the latency of two fused multiply-adds per cycle (4 or 5 cycles each),
// and the sums, one row of b and one number of a have to fit in the registers.
//   AVX2, 16 registers      16 columns: 6 x 2 + 2 + 1 = 15     24 columns: 4 x 3 + 3 + 1 = 16
//   AVX-512, 32 registers   16 columns: 16 x 1 + 1 + 1 = 18    24 columns: 12 x 2 + 2 + 1 = 27
//   NEON, 32 registers      16 columns: 6 x 4 + 4 + 1 = 29     24 columns: 4 x 6 + 6 + 1 = 31
//   SSE4, 16 registers      16 columns: 2 x 4 + 4 + 1 = 13     24 columns: 1 x 6 + 6 + 1 = 13
// With 8 columns AVX2 has only 6 sums and cannot fill the pipeline, which is why Panels avoids
// panels of 8.
constexpr int TileRows(int width) {
  if (HWY_TARGET == HWY_SSE4) return width == 24 ? 1 : width == 16 ? 2 : 4;
  if (kWideLanes == 16) return width == 24 ? 12 : 16;
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

// Adds the products of the `count` channels of one panel of a.
template <int kPanelWidth, typename Math, int kRows, int kWidth>
HWY_INLINE void AddPanel(Tile<Math, kRows, kWidth>& tile, const typename Math::Number* a, int count,
                         const typename Math::Number* b) {
#pragma GCC unroll 4
  for (int k = 0; k < count; k += Math::kDepth) tile.Add(a + k, kPanelWidth, b + k * kWidth);
}

// The operands of MultiplyPanel.
template <typename Number>
struct PanelProduct {
  const Panels& inner;
  const Number* a;
  int64_t a_rows;
  const Number* b;
  float* c;
};

// Computes one tile of c = a * b: kRows rows of a times the whole panel b. The tile goes through
// the inner dimension panel by panel of a, one channel k at a time.
//
//                        b [inner, kWidth], one dense panel
//                       .----------------.
//                     k |################|   vector loads
//                       '----------------'
//     a        k
//           .--#-----.  .----------------.
//   kRows   |  #     |  | sum            |   registers
//           '--#-----'  '----------------'
//          broadcasts
//
// The calls for one panel b read b again for each kRows rows of a, so b (16 or 24 columns) should
// stay in the L1 cache, while a is streamed. Then multiply-add throughput is the likely bound.
template <typename Math, int kWidth, int kRows>
void MultiplyTile(const PanelProduct<typename Math::Number>& product, int64_t a_row,
                  int64_t c_row) {
  Tile<Math, kRows, kWidth> tile;
  for (int64_t p = 0; p < product.inner.count(); ++p) {
    const Panel panel = product.inner[p];
    const auto* a = product.a + product.a_rows * panel.start + a_row * panel.width;
    const auto* b = product.b + panel.start * kWidth;
    if (panel.width == 16) {
      AddPanel<16>(tile, a, panel.valid, b);
    } else if (panel.width == 24) {
      AddPanel<24>(tile, a, panel.valid, b);
    } else {
      AddPanel<8>(tile, a, panel.valid, b);
    }
  }
  tile.StoreTo(product.c + c_row * kWidth, kWidth, Store::kWrite);
}

// Calls f.operator()<rows>() for a number of rows between 1 and kMost that is known at run time.
template <int kMost, typename F>
void WithRows(int64_t rows, F f) {
  if constexpr (kMost > 0) {
    if (rows == kMost) return f.template operator()<kMost>();
    WithRows<kMost - 1>(rows, f);
  }
}

// Calls f.operator()<width>() for the width of a panel.
template <typename F>
void WithWidth(int width, F f) {
  if (width == 16) return f.template operator()<16>();
  if (width == 24) return f.template operator()<24>();
  f.template operator()<8>();
}

template <typename Math>
void MultiplyPanelOf(const Panels& inner, const typename Math::Number* a, int64_t a_rows,
                     int64_t first_row, int64_t rows, const typename Math::Number* b, int width,
                     float* c) {
  const PanelProduct<typename Math::Number> product{inner, a, a_rows, b, c};
  WithWidth(width, [&]<int kWidth>() HWY_ATTR {
    constexpr int kRows = TileRows(kWidth);
    int64_t r = 0;
    for (; r + kRows <= rows; r += kRows) {
      MultiplyTile<Math, kWidth, kRows>(product, first_row + r, r);
    }
    WithRows<kRows - 1>(rows - r, [&]<int kLast>() HWY_ATTR {
      MultiplyTile<Math, kWidth, kLast>(product, first_row + r, r);
    });
  });
}

// The operands of MultiplyTransposed, from one column of a on.
template <typename Number>
struct TransposedProduct {
  const Number* a;
  int a_width;
  const Number* b;
  int64_t rows;
  float* c;
  int64_t ldc;
  Store store;
};

// Computes one tile of c = or += transpose(a) * b: kRows columns of the panel a times the panel b,
// summed over the rows m of both. Each row is one outer product of kRows neighbouring numbers of a
// with the row of b. Both panels are read front to back, so nothing is gathered or transposed. The
// result stays in registers for all rows and is stored once. Multiply-add throughput is the likely
// bound while the panels come from a cache; with very many rows it is the bandwidth of that cache.
//
//            a [rows, a_width]      b [rows, kWidth]
//           .----.---.------.      .----------------.
//        m  |    |###|      |      |################|
//           '----'---'------'      '----------------'
//               kRows columns
template <typename Math, int kWidth, int kRows>
void TransposedTile(const TransposedProduct<typename Math::Number>& product) {
  Tile<Math, kRows, kWidth> tile;
#pragma GCC unroll 4
  for (int64_t m = 0; m < product.rows; m += Math::kDepth) {
    tile.Add(product.a + m * product.a_width, Math::kDepth, product.b + m * kWidth);
  }
  tile.StoreTo(product.c, product.ldc, product.store);
}

template <typename Math>
void MultiplyTransposedOf(const typename Math::Number* a, int a_width, int a_valid,
                          const typename Math::Number* b, int b_width, int64_t rows, float* c,
                          int64_t ldc, Store store) {
  TransposedProduct<typename Math::Number> product{a, a_width, b, rows, c, ldc, store};
  WithWidth(b_width, [&]<int kWidth>() HWY_ATTR {
    constexpr int kRows = TileRows(kWidth);
    for (; a_valid >= kRows; a_valid -= kRows) {
      TransposedTile<Math, kWidth, kRows>(product);
      product.a += kRows * Math::kDepth;
      product.c += kRows * product.ldc;
    }
    WithRows<kRows - 1>(
        a_valid, [&]<int kLast>() HWY_ATTR { TransposedTile<Math, kWidth, kLast>(product); });
  });
}

// Makes pairs of 8 or 16 numbers of two rows at a time. One pass over memory that is in the cache.
void PairRows(const Panels& panels, const Bfloat16* from, int64_t block_rows, int64_t first,
              int64_t rows, Bfloat16* to) {
  const hn::RebindToUnsigned<Narrow> pairs;
  const hn::Rebind<uint16_t, Narrow> halves;
  const auto load = [&](const Bfloat16* p) HWY_ATTR {
    return hn::PromoteTo(pairs, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(p)));
  };
  const int64_t step = hn::Lanes(pairs);
  for (int64_t p = 0; p < panels.count(); ++p) {
    const Panel panel = panels[p];
    const Bfloat16* row = from + block_rows * panel.start + first * panel.width;
    auto* out = reinterpret_cast<uint32_t*>(to + EvenRows<Bfloat16>(block_rows) * panel.start +
                                            first * panel.width);
    for (int64_t r = 0; r < rows; r += 2, row += 2 * panel.width, out += panel.width) {
      for (int64_t c = 0; c < panel.width; c += step) {
        auto pair = load(row + c);
        if (r + 1 < rows) pair = hn::Or(pair, hn::ShiftLeft<16>(load(row + panel.width + c)));
        hn::StoreU(pair, pairs, out + c);
      }
    }
  }
}

constexpr auto* kMultiplyFloatPanel = MultiplyPanelOf<FloatMath>;
constexpr auto* kMultiplyPairPanel = MultiplyPanelOf<WidenedPairMath>;
constexpr auto* kMultiplyTransposedFloats = MultiplyTransposedOf<FloatMath>;
constexpr auto* kMultiplyTransposedPairs = MultiplyTransposedOf<WidenedPairMath>;
#if HWY_TARGET == HWY_AVX3
constexpr auto* kMultiplyPairPanelAtOnce = MultiplyPanelOf<PairMath>;
constexpr auto* kMultiplyTransposedPairsAtOnce = MultiplyTransposedOf<PairMath>;
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

void MultiplyPanel(const Panels& inner, const float* a, int64_t a_rows, int64_t first_row,
                   int64_t rows, const float* b, int width, float* c) {
  PUSHPULL_FOR_CHOSEN_ISA(kMultiplyFloatPanel)(inner, a, a_rows, first_row, rows, b, width, c);
}

void MultiplyPanel(const Panels& inner, const Bfloat16* a, int64_t a_rows, int64_t first_row,
                   int64_t rows, const Bfloat16* b, int width, float* c) {
  const FlushDenormals flush;
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyPairPanel);
#if HWY_ARCH_X86
  if (ChosenCpuIsa() == CpuIsa::kAvx512Bf16) multiply = N_AVX3::kMultiplyPairPanelAtOnce;
#endif
  multiply(inner, a, a_rows, first_row, rows, b, width, c);
}

void MultiplyTransposed(const float* a, int a_width, int a_valid, const float* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store) {
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyTransposedFloats);
  multiply(a, a_width, a_valid, b, b_width, rows, c, ldc, store);
}

void MultiplyTransposed(const Bfloat16* a, int a_width, int a_valid, const Bfloat16* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store) {
  const FlushDenormals flush;
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyTransposedPairs);
#if HWY_ARCH_X86
  if (ChosenCpuIsa() == CpuIsa::kAvx512Bf16) multiply = N_AVX3::kMultiplyTransposedPairsAtOnce;
#endif
  multiply(a, a_width, a_valid, b, b_width, rows, c, ldc, store);
}

void PairRows(const Panels& panels, const Bfloat16* from, int64_t block_rows, int64_t first,
              int64_t rows, Bfloat16* to) {
  PUSHPULL_FOR_CHOSEN_ISA(PairRows)(panels, from, block_rows, first, rows, to);
}

}  // namespace pushpull
#endif  // HWY_ONCE
