// Tested by tests/kernels/cpu/winograd_weight_gradient_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/winograd_weight_gradient.h"

#include <algorithm>
#include <type_traits>

#include "common/base/cpu_isa.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernel_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/winograd_weight_gradient.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// These come after foreach_target.h, because they are compiled for each instruction set as well.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/winograd_transforms.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// The tiles of all images in order: row by row, image by image.
struct Tile {
  Tile(int64_t number, const WinogradTiling& tiling)
      : image(number / tiling.tiles()),
        row(number / tiling.columns() % tiling.rows()),
        column(number % tiling.columns()) {}
  int64_t image, row, column;

  HWY_INLINE void Advance(const WinogradTiling& tiling) {
    if (++column < tiling.columns()) return;
    column = 0;
    if (++row < tiling.rows()) return;
    row = 0;
    ++image;
  }
};

// Writes the 16 transformed numbers of a vector of channels of some tiles, which
// transform(tile, v) returns, to the vector's place in [16] blocks of rows with `width` numbers
// that are `position` numbers apart: number i of tile t of them to row t of block i.
template <typename Lanes, typename P, typename F>
HWY_INLINE void StoreTiles(const WinogradTiling& tiling, const TileRange& tiles, Lanes lanes,
                           int64_t width, int64_t position, P* out, F transform) {
  Tile tile(tiles.begin, tiling);
  for (int64_t t = 0; t < tiles.count(); ++t, out += width, tile.Advance(tiling)) {
    Vector v[16];
    transform(tile, v);
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) lanes.StorePadded(out + i * position, v[i]);
  }
  if (EvenRows<P>(tiles.count()) == tiles.count()) return;
  for (int64_t i = 0; i < 16; ++i) lanes.StorePadded(out + i * position, Zero());
}

// The same with the rows in pairs. The second of a pair that lacks one is zero.
template <typename Lanes, typename F>
HWY_INLINE void StoreTiles(const WinogradTiling& tiling, const TileRange& tiles, Lanes lanes,
                           int64_t width, int64_t position, Bfloat16* out, F transform) {
  auto* pairs = reinterpret_cast<float*>(out);
  Tile tile(tiles.begin, tiling);
  for (int64_t t = 0; t < tiles.count(); t += 2, pairs += width, tile.Advance(tiling)) {
    Vector first[16], second[16];
    transform(tile, first);
    if (t + 1 < tiles.count()) {
      tile.Advance(tiling);
      transform(tile, second);
    } else {
      std::fill_n(second, 16, Zero());
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) {
      lanes.StorePadded(pairs + i * (position / 2), Pair(first[i], second[i]));
    }
  }
}

// Transforms one panel of channels of some tiles of `images`: squares of pixels that are two apart,
// the first of which, tile 0, begins with pixel (-top, -left). Number i goes to a block of rows
// that begins i * position numbers after `out`. What is read comes from memory or a shared cache,
// what is written goes there, and each vector of channels takes about 30 operations for 16 numbers.
template <typename Transform, typename P>
void TransformPanel(const WinogradTiling& tiling, const TileRange& tiles, const Shape& shape,
                    int64_t top, int64_t left, const TensorOf<P>* images, const Panel& panel,
                    int64_t position, P* out) {
  constexpr int64_t kDepth = std::is_same_v<P, Bfloat16> ? 2 : 1;  // 2: rows in pairs
  ForEachVector(panel.start, panel.start + panel.valid, [&](int64_t c, auto lanes) HWY_ATTR {
    const auto transform = [&](const Tile& tile, Vector v[16]) HWY_ATTR {
      const TensorOf<P>* image = images + tile.image * shape.h * shape.w * shape.c;
      TransformPixels<Transform>(shape, image, 2 * tile.row - top, 2 * tile.column - left, c, lanes,
                                 v);
    };
    StoreTiles(tiling, tiles, lanes, panel.width, position, out + (c - panel.start) * kDepth,
               transform);
  });
}

template <typename P>
void TransformInput(const WinogradTiling& tiling, const TileRange& tiles, const TensorOf<P>* x,
                    const Panel& panel, int64_t position, P* out) {
  TransformPanel<SourceTransform>(tiling, tiles, tiling.source, tiling.top, tiling.left, x, panel,
                                  position, out);
}

template <typename P>
void TransformGradient(const WinogradTiling& tiling, const TileRange& tiles, const TensorOf<P>* dy,
                       const Panel& panel, int64_t position, P* out) {
  TransformPanel<GradientTransform>(tiling, tiles, tiling.result, 0, 0, dy, panel, position, out);
}

// Turns 16 sums, `position` floats apart, into the gradients of nine taps, which are `tap` floats
// apart, for a row of `channels` of them. The sums come from memory or a shared cache.
void TransformToTaps(const float* sums, int64_t position, int64_t channels, int64_t tap,
                     float* dweights) {
  ForEachVector(0, channels, [&](int64_t c, auto lanes) HWY_ATTR {
    const auto load = [&](int64_t i, int64_t j)
                          HWY_ATTR { return lanes.LoadPadded(sums + (4 * i + j) * position + c); };
    Vector taps[9];
    TransformSquare<TapGradientTransform>(load, taps);
#pragma GCC unroll 9
    for (int64_t i = 0; i < 9; ++i) {
      lanes.Store(dweights + i * tap + c, taps[i]);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

namespace {

// The tiles of a group. All groups are nearly equal and have an even number of tiles, or there is
// one group of all tiles.
int64_t GroupTiles(const WinogradTiling& tiling, const Panels& outer) {
  const int64_t tiles = tiling.all_tiles();
  const int64_t numbers = kWinogradPositions * tiles * outer.padded();
  const int64_t groups = (numbers + kWinogradGroupNumbers - 1) / kWinogradGroupNumbers;
  return groups == 1 ? tiles : ((tiles + groups - 1) / groups + 1) / 2 * 2;
}

// How many slices the panels of x are cut into: one for each panel of x, unless a group has many
// tiles. Then the transformed dy is large and may not stay in the last-level cache, so it is read
// less often, once for several panels. At least 8 slices keep several threads busy.
constexpr int64_t kTilesPerPanel = 160;
constexpr int64_t kMaxSlicePanels = 8;
constexpr int64_t kMinSlices = 8;
int64_t SlicesOf(int64_t group_tiles, const Panels& inner) {
  const int64_t panels = std::clamp<int64_t>(group_tiles / kTilesPerPanel, 1, kMaxSlicePanels);
  const int64_t slices = std::max(kMinSlices, (inner.count() + panels - 1) / panels);
  return std::min(slices, inner.count());
}
// The channels of the largest slice at most: 16 per panel, but 24 in one of them.
int64_t SliceChannels(const Panels& inner, int64_t slices) {
  return std::min(16 * ((inner.count() + slices - 1) / slices) + 8, inner.padded());
}

// The tiles that are summed up at once: those of one panel of floats take 24 KiB, half of a
// first-level cache.
constexpr int64_t kSumTiles = 384;
// A cache line of floats between the sums of two positions keeps those that belong together out of
// the same set of a cache.
constexpr int64_t kLine = 16;

}  // namespace

template <typename P>
WinogradWeightGradient<P>::WinogradWeightGradient(const WinogradTiling& tiling, int threads,
                                                  Arena* arena)
    : tiling_(tiling),
      group_tiles_(GroupTiles(tiling, ResultPanels(tiling.result.c))),
      rows_(EvenRows<P>(group_tiles_)),
      inner_(tiling.source.c),
      outer_(ResultPanels(tiling.result.c)),
      slices_(SlicesOf(group_tiles_, inner_)),
      copies_(threads, slices_),
      x_size_(kWinogradPositions * rows_ * SliceChannels(inner_, slices_)),
      sums_position_(SliceChannels(inner_, slices_) * outer_.padded() + kLine),
      sums_size_(kWinogradPositions * sums_position_),
      transformed_dy_(arena->Numbers<P>(kWinogradPositions * rows_ * outer_.padded())),
      transformed_x_(arena->Numbers<P>(copies_.count * x_size_)),
      sums_(arena->Floats((group_tiles_ < tiling.all_tiles() ? slices_ : copies_.count) *
                          sums_size_)) {}

template <typename P>
void WinogradWeightGradient<P>::Run(const TensorOf<P>* x, const TensorOf<P>* dy, float* dweights,
                                    ThreadPool* pool) const {
  const int64_t all = tiling_.all_tiles();
  const bool one_group = group_tiles_ == all;
  for (int64_t first = 0; first < all; first += group_tiles_) {
    const TileRange tiles{first, std::min(first + group_tiles_, all)};
    KernelLoop(pool, outer_.count(), [&](int64_t i) {
      const Panel panel = outer_[i];
      PUSHPULL_FOR_CHOSEN_ISA(TransformGradient<P>)
      (tiling_, tiles, dy, panel, rows_ * outer_.padded(), transformed_dy_ + rows_ * panel.start);
    });
    KernelLoop(pool, slices_, [&](int64_t number, int thread) {
      const PanelRange slice{inner_.count() * number / slices_,
                             inner_.count() * (number + 1) / slices_};
      const int64_t copy = copies_.Of(number, thread);
      float* sums = sums_ + (one_group ? copy : number) * sums_size_;
      SliceTask(x, slice, tiles, transformed_x_ + copy * x_size_, sums);
      if (tiles.end == all) SumsToTaps(slice, sums, dweights);
    });
  }
}

template <typename P>
void WinogradWeightGradient<P>::SliceTask(const TensorOf<P>* x, const PanelRange& slice,
                                          const TileRange& tiles, P* transformed_x,
                                          float* sums) const {
  const int64_t start = inner_[slice.begin].start;
  const Panel last = inner_[slice.end - 1];
  const int64_t x_position = rows_ * (last.start + last.width - start);
  for (int64_t i = slice.begin; i < slice.end; ++i) {
    const Panel in = inner_[i];
    PUSHPULL_FOR_CHOSEN_ISA(TransformInput<P>)
    (tiling_, tiles, x, in, x_position, transformed_x + rows_ * (in.start - start));
  }
  for (int64_t position = 0; position < kWinogradPositions; ++position) {
    MultiplyTiles(slice, tiles, transformed_x + position * x_position,
                  transformed_dy_ + position * rows_ * outer_.padded(),
                  sums + position * sums_position_);
  }
}

template <typename P>
void WinogradWeightGradient<P>::MultiplyTiles(const PanelRange& range, const TileRange& tiles,
                                              const P* x, const P* dy, float* sums) const {
  const int64_t ldc = outer_.padded(), start = inner_[range.begin].start;
  for (int64_t first = 0; first < tiles.count(); first += kSumTiles) {
    const Store store = tiles.begin + first == 0 ? Store::kWrite : Store::kAdd;
    for (int64_t o = 0; o < outer_.count(); ++o) {
      const Panel out = outer_[o];
      for (int64_t i = range.begin; i < range.end; ++i) {
        const Panel in = inner_[i];
        MultiplyTransposed(x + rows_ * (in.start - start) + first * in.width, in.width, in.valid,
                           dy + rows_ * out.start + first * out.width, out.width,
                           std::min(kSumTiles, tiles.count() - first),
                           sums + (in.start - start) * ldc + out.start, ldc, store);
      }
    }
  }
}

template <typename P>
void WinogradWeightGradient<P>::SumsToTaps(const PanelRange& slice, const float* sums,
                                           float* dweights) const {
  const int64_t inner = inner_.channels(), outer = outer_.channels();
  const int64_t start = inner_[slice.begin].start;
  const Panel last = inner_[slice.end - 1];
  for (int64_t k = start; k < last.start + last.valid; ++k) {
    PUSHPULL_FOR_CHOSEN_ISA(TransformToTaps)
    (sums + (k - start) * outer_.padded(), sums_position_, outer, inner * outer,
     dweights + k * outer);
  }
}

template class WinogradWeightGradient<float>;
template class WinogradWeightGradient<Bfloat16>;
template class WinogradWeightGradient<BfloatAsFloat>;

}  // namespace pushpull
#endif  // HWY_ONCE
