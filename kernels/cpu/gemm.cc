// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "common/base/cpu_isa.h"
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

// The rows of a register tile that has `width` columns. There have to be at least 8 to 10
// independent sums to hide the latency of two fused multiply-adds per cycle (4 or 5 cycles each),
// and the sums, one row of b and one number of a have to fit in the registers.
//   AVX2, 16 registers      16 columns: 6 x 2 + 2 + 1 = 15     24 columns: 4 x 3 + 3 + 1 = 16
//   AVX-512, 32 registers   16 columns: 16 x 1 + 1 + 1 = 18    24 columns: 12 x 2 + 2 + 1 = 27
// With 8 columns AVX2 has only 6 sums and cannot fill the pipeline, which is why Panels avoids
// panels of 8.
constexpr int TileRows(int width) {
  if (kWideLanes == 16) return width == 24 ? 12 : 16;
  return width == 24 ? 4 : 6;
}

// The sums of one tile of the result, kRows x kWidth, held in registers: per row the wide vectors
// that fit, and for the rest a vector of 8. The loops over a tile must be unrolled by pragma: at
// -O2 the sums would otherwise live in memory. Each sum is one chain of fused multiply-adds in the
// order of the inner dimension, so all instruction sets give the same bits.
template <int kRows, int kWidth>
class Tile {
 public:
  HWY_INLINE Tile() {
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kWides; ++v) wide_[i][v] = hn::Zero(Wide());
      if constexpr (kHasNarrow) narrow_[i] = hn::Zero(Narrow());
    }
  }

  // One step of the reduction, an outer product: sum[i] += a[i * a_stride] * b[0 .. kWidth). Loads
  // the vectors of b and broadcasts kRows numbers of a. A core does two loads and two multiply-adds
  // per cycle, and a tile has about as many of these as of those, so the multiply-adds are the
  // bound while both operands are in the L1 cache.
  HWY_INLINE void Add(const float* a, int64_t a_stride, const float* b) {
    hn::Vec<Wide> wide_b[kWides + 1];
    hn::Vec<Narrow> narrow_b = hn::Zero(Narrow());
#pragma GCC unroll 8
    for (int v = 0; v < kWides; ++v) wide_b[v] = hn::LoadU(Wide(), b + v * kWideLanes);
    if constexpr (kHasNarrow) narrow_b = hn::LoadU(Narrow(), b + kWides * kWideLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const auto wide_a = hn::Set(Wide(), a[i * a_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kWides; ++v) wide_[i][v] = hn::MulAdd(wide_a, wide_b[v], wide_[i][v]);
      if constexpr (kHasNarrow) {
        narrow_[i] = hn::MulAdd(hn::Set(Narrow(), a[i * a_stride]), narrow_b, narrow_[i]);
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
template <int kPanelWidth, int kRows, int kWidth>
HWY_INLINE void AddPanel(Tile<kRows, kWidth>& tile, const float* a, int count, const float* b) {
#pragma GCC unroll 4
  for (int k = 0; k < count; ++k) tile.Add(a + k, kPanelWidth, b + k * kWidth);
}

// The operands of MultiplyPanel.
struct PanelProduct {
  const Panels& inner;
  const float* a;
  int64_t a_rows;
  const float* b;
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
template <int kWidth, int kRows>
void MultiplyTile(const PanelProduct& product, int64_t a_row, int64_t c_row) {
  Tile<kRows, kWidth> tile;
  for (int64_t p = 0; p < product.inner.count(); ++p) {
    const Panel panel = product.inner[p];
    const float* a = product.a + product.a_rows * panel.start + a_row * panel.width;
    const float* b = product.b + panel.start * kWidth;
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

// Computes the last rows, fewer than those of a whole tile.
template <int kWidth, int kMostRows>
void MultiplyLastRows(const PanelProduct& product, int64_t a_row, int64_t c_row, int64_t rows) {
  if constexpr (kMostRows > 0) {
    if (rows == kMostRows) return MultiplyTile<kWidth, kMostRows>(product, a_row, c_row);
    MultiplyLastRows<kWidth, kMostRows - 1>(product, a_row, c_row, rows);
  }
}

template <int kWidth>
void MultiplyPanelOf(const PanelProduct& product, int64_t first_row, int64_t rows) {
  constexpr int kRows = TileRows(kWidth);
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) MultiplyTile<kWidth, kRows>(product, first_row + r, r);
  MultiplyLastRows<kWidth, kRows - 1>(product, first_row + r, r, rows - r);
}

// The operands of MultiplyTransposed, from one column of a on.
struct TransposedProduct {
  const float* a;
  int a_width;
  const float* b;
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
template <int kWidth, int kRows>
void TransposedTile(const TransposedProduct& product) {
  Tile<kRows, kWidth> tile;
#pragma GCC unroll 4
  for (int64_t m = 0; m < product.rows; ++m) {
    tile.Add(product.a + m * product.a_width, 1, product.b + m * kWidth);
  }
  tile.StoreTo(product.c, product.ldc, product.store);
}

template <int kWidth, int kMostRows>
void TransposedLastColumns(const TransposedProduct& product, int columns) {
  if constexpr (kMostRows > 0) {
    if (columns == kMostRows) return TransposedTile<kWidth, kMostRows>(product);
    TransposedLastColumns<kWidth, kMostRows - 1>(product, columns);
  }
}

template <int kWidth>
void MultiplyTransposedOf(TransposedProduct product, int a_valid) {
  constexpr int kRows = TileRows(kWidth);
  for (; a_valid >= kRows; a_valid -= kRows) {
    TransposedTile<kWidth, kRows>(product);
    product.a += kRows;
    product.c += kRows * product.ldc;
  }
  TransposedLastColumns<kWidth, kRows - 1>(product, a_valid);
}

void MultiplyPanel(const Panels& inner, const float* a, int64_t a_rows, int64_t first_row,
                   int64_t rows, const float* b, int width, float* c) {
  const PanelProduct product{inner, a, a_rows, b, c};
  if (width == 16) {
    MultiplyPanelOf<16>(product, first_row, rows);
  } else if (width == 24) {
    MultiplyPanelOf<24>(product, first_row, rows);
  } else {
    MultiplyPanelOf<8>(product, first_row, rows);
  }
}

void MultiplyTransposed(const float* a, int a_width, int a_valid, const float* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store) {
  const TransposedProduct product{a, a_width, b, rows, c, ldc, store};
  if (b_width == 16) {
    MultiplyTransposedOf<16>(product, a_valid);
  } else if (b_width == 24) {
    MultiplyTransposedOf<24>(product, a_valid);
  } else {
    MultiplyTransposedOf<8>(product, a_valid);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

void MultiplyPanel(const Panels& inner, const float* a, int64_t a_rows, int64_t first_row,
                   int64_t rows, const float* b, int width, float* c) {
  ForChosenCpuIsa(N_AVX2::MultiplyPanel, N_AVX3::MultiplyPanel)(inner, a, a_rows, first_row, rows,
                                                                b, width, c);
}

void MultiplyTransposed(const float* a, int a_width, int a_valid, const float* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store) {
  ForChosenCpuIsa(N_AVX2::MultiplyTransposed, N_AVX3::MultiplyTransposed)(
      a, a_width, a_valid, b, b_width, rows, c, ldc, store);
}

}  // namespace pushpull
#endif  // HWY_ONCE
