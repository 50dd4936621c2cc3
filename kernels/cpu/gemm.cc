// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstring>

#include "common/base/cpu_isa.h"
#include "kernels/cpu/panels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// These come after foreach_target.h, because they are compiled for each instruction set as well.
#include "kernels/cpu/product_tile.h"
#include "kernels/cpu/tile_product.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// Adds the products of the `count` channels of one panel of a.
template <int kPanelWidth, typename Math, int kRows, int kWidth>
HWY_INLINE void AddPanel(Tile<Math, kRows, kWidth>& tile, const typename Math::Number* a,
                         int64_t count, const typename Math::Number* b) {
  ForEachStep<Math>(count,
                    [&](int64_t k) HWY_ATTR { tile.Add(a + k, kPanelWidth, b + k * kWidth); });
}

// The operands of MultiplyPanel.
template <typename Number>
struct PanelProduct {
  const Panels& inner;
  int64_t start;  // the channel with which a and b begin
  const Number* a;
  int64_t a_rows;
  const Number* b;
  float* c;
};

// Computes one tile of c = a * b, or its next part: kRows rows of a times the panel b, for the
// channels of panels [first, end) of a. The tile goes through them panel by panel, one channel k at
// a time. Except for the first part it goes on with the sums that the part before it stored, so
// each sum is one chain in the order of the channels however they are cut.
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
// The calls for one part read the same rows of b again for each kRows rows of a, so these should
// stay in the L1 cache, while a is streamed. Then multiply-add throughput is the likely bound.
template <typename Math, int kWidth, int kRows>
void MultiplyTile(const PanelProduct<typename Math::Number>& product, int64_t first, int64_t end,
                  int64_t a_row, int64_t c_row) {
  float* const c = product.c + c_row * kWidth;
  Tile<Math, kRows, kWidth> tile;
  if (first > 0) tile.LoadFrom(c, kWidth);
  for (int64_t p = first; p < end; ++p) {
    const Panel panel = product.inner[p];
    const auto* a =
        product.a + product.a_rows * (panel.start - product.start) + a_row * panel.width;
    const auto* b = product.b + (panel.start - product.start) * kWidth;
    if (panel.width == 16) {
      AddPanel<16>(tile, a, panel.valid, b);
    } else if (panel.width == 24) {
      AddPanel<24>(tile, a, panel.valid, b);
    } else if (panel.width == 32) {
      AddPanel<32>(tile, a, panel.valid, b);
    } else {
      AddPanel<8>(tile, a, panel.valid, b);
    }
  }
  tile.StoreTo(c, kWidth, Store::kWrite);
}

// Calls f.operator()<rows>() for a number of rows between 1 and kMost that is known at run time.
template <int kMost, typename F>
void WithRows(int64_t rows, F f) {
  if constexpr (kMost > 0) {
    if (rows == kMost) return f.template operator()<kMost>();
    WithRows<kMost - 1>(rows, f);
  }
}

// Calls f.operator()<rows>(first) for tiles that cover rows [0, rows), none with more than kMost.
// All have nearly as many, because one with few rows has too few sums to hide their latency.
template <int kMost, typename F>
HWY_INLINE void ForEachTile(int64_t rows, F f) {
  const int64_t tiles = (rows + kMost - 1) / kMost;
  const int64_t fewer = rows / std::max<int64_t>(tiles, 1);
  const int64_t higher = rows - fewer * tiles;  // the tiles that have one row more
  int64_t first = 0;
  for (int64_t t = 0; t < tiles; ++t) {
    const int64_t height = fewer + (t < higher ? 1 : 0);
    WithRows<kMost>(height, [&]<int kRows>() HWY_ATTR { f.template operator()<kRows>(first); });
    first += height;
  }
}

// Calls f.operator()<width>() for the width of a panel.
template <typename F>
void WithWidth(int width, F f) {
  if constexpr (kWideLanes == 16) {
    if (width == 32) return f.template operator()<32>();
  }
  if (width == 16) return f.template operator()<16>();
  if (width == 24) return f.template operator()<24>();
  f.template operator()<8>();
}

// The bytes of b that each tile of one part of a product reads: a third of a first-level cache of
// 48 KiB, because the rows of a pass through that cache too.
constexpr int64_t kPartBytes = 16 << 10;

template <typename Math>
void MultiplyPanelOf(const Panels& inner, const PanelRange& range, const typename Math::Number* a,
                     int64_t a_rows, int64_t first_row, int64_t rows,
                     const typename Math::Number* b, int width, float* c, Prefetcher* prefetcher) {
  const PanelProduct<typename Math::Number> product{inner, inner[range.begin].start, a, a_rows, b,
                                                    c};
  const int64_t channel_bytes = width * static_cast<int64_t>(sizeof(typename Math::Number));
  const int64_t part = kPartBytes / (channel_bytes * inner[range.begin].width);
  WithWidth(width, [&]<int kWidth>() HWY_ATTR {
    for (int64_t first = range.begin; first < range.end; first += part) {
      const int64_t end = std::min(range.end, first + part);
      ForEachTile<TileRows(kWidth)>(rows, [&]<int kRows>(int64_t r) HWY_ATTR {
        if (prefetcher != nullptr) prefetcher->Step();
        MultiplyTile<Math, kWidth, kRows>(product, first, end, first_row + r, r);
      });
    }
  });
}

// The operands of MultiplyTransposed.
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

// Computes one tile of c = or += transpose(a) * b: columns [first, first + kRows) of the panel a
// times the panel b, summed over the rows m of both. Each row is one outer product of kRows
// neighbouring numbers of a with the row of b. Both panels are read front to back, so nothing is
// gathered or transposed. The result stays in registers for all rows and is stored once.
// Multiply-add throughput is the likely bound while the panels come from a cache; with very many
// rows it is the bandwidth of that cache.
//
//            a [rows, a_width]      b [rows, kWidth]
//           .----.---.------.      .----------------.
//        m  |    |###|      |      |################|
//           '----'---'------'      '----------------'
//               kRows columns
template <typename Math, int kWidth, int kRows>
void TransposedTile(const TransposedProduct<typename Math::Number>& product, int64_t first) {
  const auto* const a = product.a + first * Math::kDepth;
  Tile<Math, kRows, kWidth> tile;
  ForEachStep<Math>(product.rows, [&](int64_t m) HWY_ATTR {
    tile.Add(a + m * product.a_width, Math::kDepth, product.b + m * kWidth);
  });
  tile.StoreTo(product.c + first * product.ldc, product.ldc, product.store);
}

template <typename Math>
void MultiplyTransposedOf(const typename Math::Number* a, int a_width, int a_valid,
                          const typename Math::Number* b, int b_width, int64_t rows, float* c,
                          int64_t ldc, Store store, Prefetcher* prefetcher) {
  const TransposedProduct<typename Math::Number> product{a, a_width, b, rows, c, ldc, store};
  WithWidth(b_width, [&]<int kWidth>() HWY_ATTR {
    ForEachTile<TileRows(kWidth)>(a_valid, [&]<int kRows>(int64_t first) HWY_ATTR {
      if (prefetcher != nullptr) prefetcher->Step();
      TransposedTile<Math, kWidth, kRows>(product, first);
    });
  });
}

// Makes pairs of 8 or 16 numbers of two rows at a time. One pass over memory that is in the cache.
void PairRows(const Panels& panels, const PanelRange& range, const Bfloat16* from,
              int64_t block_rows, int64_t first, int64_t rows, Bfloat16* to) {
  const int64_t start = panels[range.begin].start;
  const hn::RebindToUnsigned<NarrowTag> pairs;
  const hn::Rebind<uint16_t, NarrowTag> halves;
  const auto load = [&](const Bfloat16* p) HWY_ATTR {
    return hn::PromoteTo(pairs, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(p)));
  };
  const int64_t step = hn::Lanes(pairs);
  for (int64_t p = range.begin; p < range.end; ++p) {
    const Panel panel = panels[p];
    const int64_t at = panel.start - start;
    const Bfloat16* row = from + block_rows * at + first * panel.width;
    auto* out =
        reinterpret_cast<uint32_t*>(to + EvenRows<Bfloat16>(block_rows) * at + first * panel.width);
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
constexpr auto* kMultiplyPanelAsFloats = MultiplyPanelOf<BfloatAsFloatMath>;
constexpr auto* kMultiplyPairPanel = MultiplyPanelOf<SplitPairMath>;
constexpr auto* kMultiplyTransposedFloats = MultiplyTransposedOf<FloatMath>;
constexpr auto* kMultiplyTransposedAsFloats = MultiplyTransposedOf<BfloatAsFloatMath>;
constexpr auto* kMultiplyTransposedPairs = MultiplyTransposedOf<SplitPairMath>;
#if HWY_TARGET == HWY_AVX3
constexpr auto* kMultiplyPairPanelAtOnce = MultiplyPanelOf<PairMath>;
constexpr auto* kMultiplyTransposedPairsAtOnce = MultiplyTransposedOf<PairMath>;
constexpr auto* kMultiplyPanelInTiles = MultiplyPanelInTiles;
constexpr auto* kMultiplyTransposedInTiles = MultiplyTransposedInTiles;
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

bool PairsAreFaster() {
#if HWY_ARCH_X86
  const CpuIsa isa = ChosenCpuIsa();
  return MultipliesInTiles(isa) || (isa == CpuIsa::kAvx512Bf16 && __builtin_cpu_is("amd"));
#else
  return false;
#endif
}

void MultiplyPanel(const Panels& inner, const PanelRange& range, const float* a, int64_t a_rows,
                   int64_t first_row, int64_t rows, const float* b, int width, float* c,
                   Prefetcher* prefetcher) {
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyFloatPanel);
  multiply(inner, range, a, a_rows, first_row, rows, b, width, c, prefetcher);
}

void MultiplyPanel(const Panels& inner, const PanelRange& range, const Bfloat16* a, int64_t a_rows,
                   int64_t first_row, int64_t rows, const Bfloat16* b, int width, float* c,
                   Prefetcher* prefetcher) {
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyPairPanel);
#if HWY_ARCH_X86
  const CpuIsa isa = ChosenCpuIsa();
  if (isa == CpuIsa::kAvx512Bf16) multiply = N_AVX3::kMultiplyPairPanelAtOnce;
  if (MultipliesInTiles(isa)) multiply = N_AVX3::kMultiplyPanelInTiles;
#endif
  multiply(inner, range, a, a_rows, first_row, rows, b, width, c, prefetcher);
}

void MultiplyPanel(const Panels& inner, const PanelRange& range, const BfloatAsFloat* a,
                   int64_t a_rows, int64_t first_row, int64_t rows, const BfloatAsFloat* b,
                   int width, float* c, Prefetcher* prefetcher) {
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyPanelAsFloats);
  multiply(inner, range, FloatsOf(a), a_rows, first_row, rows, FloatsOf(b), width, c, prefetcher);
}

void MultiplyTransposed(const float* a, int a_width, int a_valid, const float* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store, Prefetcher* prefetcher) {
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyTransposedFloats);
  multiply(a, a_width, a_valid, b, b_width, rows, c, ldc, store, prefetcher);
}

void MultiplyTransposed(const Bfloat16* a, int a_width, int a_valid, const Bfloat16* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store, Prefetcher* prefetcher) {
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyTransposedPairs);
#if HWY_ARCH_X86
  const CpuIsa isa = ChosenCpuIsa();
  if (isa == CpuIsa::kAvx512Bf16) multiply = N_AVX3::kMultiplyTransposedPairsAtOnce;
  if (MultipliesInTiles(isa)) multiply = N_AVX3::kMultiplyTransposedInTiles;
#endif
  multiply(a, a_width, a_valid, b, b_width, rows, c, ldc, store, prefetcher);
}

void MultiplyTransposed(const BfloatAsFloat* a, int a_width, int a_valid, const BfloatAsFloat* b,
                        int b_width, int64_t rows, float* c, int64_t ldc, Store store,
                        Prefetcher* prefetcher) {
  auto* multiply = PUSHPULL_FOR_CHOSEN_ISA(kMultiplyTransposedAsFloats);
  multiply(FloatsOf(a), a_width, a_valid, FloatsOf(b), b_width, rows, c, ldc, store, prefetcher);
}

void PairRows(const Panels& panels, const PanelRange& range, const Bfloat16* from,
              int64_t block_rows, int64_t first, int64_t rows, Bfloat16* to) {
  PUSHPULL_FOR_CHOSEN_ISA(PairRows)(panels, range, from, block_rows, first, rows, to);
}

}  // namespace pushpull
#endif  // HWY_ONCE
