// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/gemm.h"

#include <algorithm>

#include "kernels/cpu/simd.h"

namespace pushpull {

namespace {

// The rows of a register tile. A tile of two or three vectors has 12 accumulators: enough
// independent sums to hide the latency of two fused multiply-adds per cycle (4 or 5 cycles each),
// and with the operands they still fit in the 16 registers: 6 x 2 + 2 + 1 = 15,
// 4 x 3 + 3 + 1 = 16. A tile of one vector has only 6 accumulators and cannot fill the pipeline,
// which is why Panels avoids panels of 8.
constexpr int TileRows(int vectors) { return vectors == 3 ? 4 : 6; }

// The accumulators of one tile of the result, kRows x (8 * kVectors), held in registers. The loops
// over a tile must be unrolled by pragma: at -O2 the accumulators would otherwise live in memory.
template <int kRows, int kVectors>
struct Tile {
  Vector sum[kRows][kVectors];

  Tile() {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm256_setzero_ps();
    }
  }

  // One step of the reduction, an outer product: sum[i] += a[i * a_stride] * b[0 .. 8 * kVectors).
  // Loads kVectors vectors of b and broadcasts kRows numbers of a for kRows * kVectors
  // multiply-adds. With 2 or 3 vectors these are 8 or 7 loads for 12 multiply-adds; a core does two
  // of each per cycle, so the multiply-adds are the bound while both operands are in the L1 cache.
  __attribute__((always_inline)) void Add(const float* a, int64_t a_stride, const float* b) {
    Vector vb[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) vb[v] = _mm256_loadu_ps(b + v * kVector);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Vector va = _mm256_broadcast_ss(a + i * a_stride);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[i][v] = _mm256_fmadd_ps(va, vb[v], sum[i][v]);
    }
  }
};

// Adds the products of the `count` channels of one panel of a; kWidth is the panel's width.
template <int kRows, int kVectors, int kWidth>
__attribute__((always_inline)) inline void AddPanel(Tile<kRows, kVectors>& tile, const float* a,
                                                    int count, const float* b) {
#pragma GCC unroll 4
  for (int k = 0; k < count; ++k) tile.Add(a + k, kWidth, b + k * kVectors * kVector);
}

// Computes one tile of c = a * b: kRows rows of a, starting at `row`, times the whole panel b. The
// tile goes through the inner dimension panel by panel of a, one channel k at a time.
//
//                        b [inner, 8 * kVectors], one dense panel
//                       .----------------.
//                     k |################|   kVectors vector loads
//                       '----------------'
//     a        k
//           .--#-----.  .----------------.
//   kRows   |  #     |  | sum            |   kRows x kVectors registers
//           '--#-----'  '----------------'
//          broadcasts
//
// The calls for one panel b read b again for each kRows rows of a, so b (16 or 24 columns) should
// stay in the L1 cache, while a is streamed. Then multiply-add throughput is the likely bound.
template <int kRows, int kVectors>
void MultiplyTile(const Panels& inner, const float* a, int64_t a_rows, int64_t row, const float* b,
                  float* c) {
  Tile<kRows, kVectors> tile;
  for (int64_t p = 0; p < inner.count(); ++p) {
    const Panel panel = inner[p];
    const float* pa = a + a_rows * panel.start + row * panel.width;
    const float* pb = b + panel.start * kVectors * kVector;
    if (panel.width == 16) {
      AddPanel<kRows, kVectors, 16>(tile, pa, panel.valid, pb);
    } else if (panel.width == 24) {
      AddPanel<kRows, kVectors, 24>(tile, pa, panel.valid, pb);
    } else {
      AddPanel<kRows, kVectors, 8>(tile, pa, panel.valid, pb);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      _mm256_storeu_ps(c + (i * kVectors + v) * kVector, tile.sum[i][v]);
    }
  }
}

// Calls tile.operator()<n>() with n = rows, 1 <= rows <= kMost.
template <int kMost, typename F>
inline void WithRows(int64_t rows, F f) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return WithRows<kMost - 1>(rows, f);
  }
  f.template operator()<kMost>();
}

template <int kVectors>
void MultiplyPanelOf(const Panels& inner, const float* a, int64_t a_rows, int64_t first,
                     int64_t rows, const float* b, float* c) {
  constexpr int kRows = TileRows(kVectors);
  for (int64_t r = 0; r < rows; r += kRows) {
    WithRows<kRows>(std::min<int64_t>(rows - r, kRows), [&]<int n>() {
      MultiplyTile<n, kVectors>(inner, a, a_rows, first + r, b, c + r * kVectors * kVector);
    });
  }
}

// Computes one tile of c = or += transpose(a) * b: kRows columns of the panel a times the panel b,
// summed over the rows m of both. Each row is one outer product of kRows neighbouring numbers of a
// with the row of b. Both panels are read front to back, so nothing is gathered or transposed. The
// result stays in registers for all rows and is stored once. Multiply-add throughput is the likely
// bound while the panels come from a cache; with very many rows it is the bandwidth of that cache.
//
//            a [rows, a_width]      b [rows, 8 * kVectors]
//           .----.---.------.      .----------------.
//        m  |    |###|      |      |################|
//           '----'---'------'      '----------------'
//               kRows columns
template <int kRows, int kVectors>
void TransposedTile(const float* a, int a_width, const float* b, int64_t rows, float* c,
                    int64_t ldc, Store store) {
  Tile<kRows, kVectors> tile;
#pragma GCC unroll 4
  for (int64_t m = 0; m < rows; ++m) tile.Add(a + m * a_width, 1, b + m * kVectors * kVector);
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      float* out = c + i * ldc + v * kVector;
      const Vector sum = tile.sum[i][v];
      _mm256_storeu_ps(out, store == Store::kAdd ? _mm256_add_ps(_mm256_loadu_ps(out), sum) : sum);
    }
  }
}

template <int kVectors>
void MultiplyTransposedOf(const float* a, int a_width, int a_valid, const float* b, int64_t rows,
                          float* c, int64_t ldc, Store store) {
  constexpr int kRows = TileRows(kVectors);
  for (int k = 0; k < a_valid; k += kRows) {
    WithRows<kRows>(std::min(a_valid - k, kRows), [&]<int n>() {
      TransposedTile<n, kVectors>(a + k, a_width, b, rows, c + k * ldc, ldc, store);
    });
  }
}

}  // namespace

void MultiplyPanel(const Panels& inner, const float* a, int64_t a_rows, int64_t first_row,
                   int64_t rows, const float* b, int width, float* c) {
  if (width == 16) {
    MultiplyPanelOf<2>(inner, a, a_rows, first_row, rows, b, c);
  } else if (width == 24) {
    MultiplyPanelOf<3>(inner, a, a_rows, first_row, rows, b, c);
  } else {
    MultiplyPanelOf<1>(inner, a, a_rows, first_row, rows, b, c);
  }
}

void MultiplyTransposed(const float* a, int a_width, int a_valid, const float* b, int b_width,
                        int64_t rows, float* c, int64_t ldc, Store store) {
  if (b_width == 16) {
    MultiplyTransposedOf<2>(a, a_width, a_valid, b, rows, c, ldc, store);
  } else if (b_width == 24) {
    MultiplyTransposedOf<3>(a, a_width, a_valid, b, rows, c, ldc, store);
  } else {
    MultiplyTransposedOf<1>(a, a_width, a_valid, b, rows, c, ldc, store);
  }
}

}  // namespace pushpull
