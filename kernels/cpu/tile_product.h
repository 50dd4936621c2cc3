// The products of gemm.cc in the tile registers of Intel's AMX. Included like simd.h; only the
// target with AVX-512 has something in it, because a processor with AMX has that too.
#if defined(PUSHPULL_KERNELS_CPU_TILE_PRODUCT_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_TILE_PRODUCT_H_
#undef PUSHPULL_KERNELS_CPU_TILE_PRODUCT_H_
#else
#define PUSHPULL_KERNELS_CPU_TILE_PRODUCT_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/prefetcher.h"
#include "kernels/cpu/tile_registers.h"
#include "kernels/cpu/transpose.h"

#if HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

// The instructions, as inline assembly: the compiler's intrinsics are for functions that are
// compiled for AMX as a whole, and do not tell it that they read memory.
template <int kTile>
HWY_INLINE void LoadTile(const void* from, int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
               :
               : "r"(from), "r"(row_bytes), "i"(kTile)
               : "memory");
}
template <int kTile>
HWY_INLINE void StoreTile(void* to, int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(row_bytes), "i"(kTile) : "memory");
}
template <int kTile>
HWY_INLINE void ClearTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// Adds the product of tiles kA and kB to tile kSum. For 16 rows and 16 pairs that is 8,192
// multiply-adds; with half of the pairs it took 0.7 times as long.
template <int kSum, int kA, int kB>
HWY_INLINE void AddProduct() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

// The operands of a product of tiles, which has `steps` steps of TileSizes::pairs pairs each. Rows
// of a are a_row numbers apart, rows of pairs of b b_row, and a step begins a_step and b_step
// numbers after the one before it.
struct TileOperands {
  const Bfloat16* a;
  int64_t a_row, a_step;
  const Bfloat16* b;
  int64_t b_row, b_step;
  int64_t steps;
};

// c = or += a * b, where rows of c are ldc floats apart. There are four loads and four products in
// each step. b stays in the first-level cache, and a is streamed, often from the second-level
// cache; while both are in the first-level cache, the products are the bound.
template <bool kTwoRows, bool kTwoColumns>
HWY_INLINE void MultiplyTilesOf(const TileOperands& operands, Store store, float* c, int64_t ldc) {
  const int64_t float_bytes = sizeof(float), bytes = sizeof(Bfloat16);
  float* const lower = c + kTileRows * ldc;
  if (store == Store::kAdd) {
    LoadTile<0>(c, ldc * float_bytes);
    if constexpr (kTwoColumns) LoadTile<1>(c + kTilePairs, ldc * float_bytes);
    if constexpr (kTwoRows) LoadTile<2>(lower, ldc * float_bytes);
    if constexpr (kTwoRows && kTwoColumns) LoadTile<3>(lower + kTilePairs, ldc * float_bytes);
  } else {
    ClearTile<0>();
    if constexpr (kTwoColumns) ClearTile<1>();
    if constexpr (kTwoRows) ClearTile<2>();
    if constexpr (kTwoRows && kTwoColumns) ClearTile<3>();
  }
  const Bfloat16* a = operands.a;
  const Bfloat16* b = operands.b;
  for (int64_t step = 0; step < operands.steps; ++step) {
    LoadTile<4>(a, operands.a_row * bytes);
    LoadTile<6>(b, operands.b_row * bytes);
    AddProduct<0, 4, 6>();
    if constexpr (kTwoColumns) {
      LoadTile<7>(b + 2 * kTilePairs, operands.b_row * bytes);
      AddProduct<1, 4, 7>();
    }
    if constexpr (kTwoRows) {
      LoadTile<5>(a + kTileRows * operands.a_row, operands.a_row * bytes);
      AddProduct<2, 5, 6>();
      if constexpr (kTwoColumns) AddProduct<3, 5, 7>();
    }
    a += operands.a_step;
    b += operands.b_step;
  }
  StoreTile<0>(c, ldc * float_bytes);
  if constexpr (kTwoColumns) StoreTile<1>(c + kTilePairs, ldc * float_bytes);
  if constexpr (kTwoRows) StoreTile<2>(lower, ldc * float_bytes);
  if constexpr (kTwoRows && kTwoColumns) StoreTile<3>(lower + kTilePairs, ldc * float_bytes);
}

HWY_INLINE void MultiplyTiles(const TileSizes& sizes, const TileOperands& operands, Store store,
                              float* c, int64_t ldc) {
  ConfigureTiles(sizes);
  const bool two_rows = sizes.rows > kTileRows, two_columns = sizes.columns > kTilePairs;
  if (two_rows && two_columns) return MultiplyTilesOf<true, true>(operands, store, c, ldc);
  if (two_rows) return MultiplyTilesOf<true, false>(operands, store, c, ldc);
  if (two_columns) return MultiplyTilesOf<false, true>(operands, store, c, ldc);
  MultiplyTilesOf<false, false>(operands, store, c, ldc);
}

// The bytes of b that all rows of a are multiplied with before the next ones: a third of a
// first-level cache of 48 KiB.
constexpr int64_t kTilePartBytes = 16 << 10;

// As MultiplyPanel. Each panel of a is one step. Panels of another width than those before them,
// like the last one, need tiles of other sizes, so they are multiplied afterwards.
inline void MultiplyPanelInTiles(const Panels& inner, const PanelRange& range, const Bfloat16* a,
                                 int64_t a_rows, int64_t first_row, int64_t rows, const Bfloat16* b,
                                 int width, float* c, Prefetcher* prefetcher) {
  const int64_t start = inner[range.begin].start;
  for (int64_t begin = range.begin; begin < range.end;) {
    const Panel panel = inner[begin];
    const int64_t b_step = int64_t{panel.width} * width;
    const int64_t part =
        std::max<int64_t>(1, kTilePartBytes / (b_step * static_cast<int64_t>(sizeof(Bfloat16))));
    int64_t end = begin + 1;
    while (end < std::min(range.end, begin + part) && inner[end].width == panel.width &&
           inner[end].valid == panel.valid) {
      ++end;
    }
    TileOperands operands{a + a_rows * (panel.start - start) + first_row * panel.width,
                          panel.width,
                          a_rows * panel.width,
                          b + (panel.start - start) * width,
                          2 * width,
                          b_step,
                          end - begin};
    for (int64_t r = 0; r < rows; r += 2 * kTileRows) {
      if (prefetcher != nullptr) prefetcher->Step();
      const int height = static_cast<int>(std::min<int64_t>(rows - r, 2 * kTileRows));
      MultiplyTiles({height, width, (panel.valid + 1) / 2}, operands,
                    begin > 0 ? Store::kAdd : Store::kWrite, c + r * width, width);
      operands.a += 2 * kTileRows * panel.width;
    }
    begin = end;
  }
}

// As MultiplyTransposed, with operands from PairRows. Tiles need the pairs of a column of a next to
// each other, so a is transposed, some hundred rows at a time. The rows are cut into steps of up to
// 16 pairs that are as equal as possible.
inline void MultiplyTransposedInTiles(const Bfloat16* a, int a_width, int a_valid,
                                      const Bfloat16* b, int b_width, int64_t rows, float* c,
                                      int64_t ldc, Store store, Prefetcher* prefetcher) {
  constexpr int64_t kPairs = 192;
  alignas(64) uint32_t columns[kMaxPanelWidth * kPairs];
  const int64_t all = (rows + 1) / 2;
  for (int64_t first = 0; first < all; first += kPairs) {
    if (prefetcher != nullptr) prefetcher->Step();
    const int64_t pairs = std::min(kPairs, all - first);
    const int64_t padded = PadToPanel(pairs);
    Transpose(reinterpret_cast<const uint32_t*>(a) + first * a_width, a_width, a_width, pairs,
              padded, columns);
    const int64_t steps = (pairs + kTilePairs - 1) / kTilePairs;
    const int64_t depth = (pairs + steps - 1) / steps;
    for (int64_t done = 0; done < pairs;) {
      const int64_t now = std::min(depth, pairs - done);
      const TileOperands operands{reinterpret_cast<const Bfloat16*>(columns + done),
                                  2 * padded,
                                  2 * now,
                                  b + 2 * (first + done) * b_width,
                                  2 * b_width,
                                  2 * now * b_width,
                                  (pairs - done) / now};
      MultiplyTiles({a_valid, b_width, static_cast<int>(now)}, operands, store, c, ldc);
      store = Store::kAdd;
      done += now * operands.steps;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET == HWY_AVX3

#endif  // PUSHPULL_KERNELS_CPU_TILE_PRODUCT_H_
