// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/winograd_product.h"

#include <algorithm>

#include "common/base/cpu_isa.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernel_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/winograd_product.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// These come after foreach_target.h, because they are compiled for each instruction set as well.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/winograd_transforms.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// Transforms the tiles of one row of tiles of one image, for all channels. Numbers of position p of
// tile t are written to row first_tile + t of the p-th block of `out`, which has `block_rows` rows,
// in panels. For each vector of channels it goes along the row of tiles: 16 loads, 32 sums and 16
// stores per tile. The stores go to 16 blocks in the last-level cache or main memory, each front to
// back, and their bandwidth is the bound.
template <typename P>
void TransformTiles(const WinogradTiling& tiling, const Panels& panels, const TensorOf<P>* image,
                    int64_t tile_row, int64_t block_rows, int64_t first_tile, P* out) {
  const int64_t top = 2 * tile_row - tiling.top;
  const int64_t position = block_rows * panels.padded();  // numbers from one block to the next
  for (int64_t p = 0; p < panels.count(); ++p) {
    const Panel panel = panels[p];
    ForEachVector(panel.start, panel.start + panel.valid, [&](int64_t c, auto lanes) HWY_ATTR {
      P* to = out + block_rows * panel.start + first_tile * panel.width + c - panel.start;
      for (int64_t t = 0; t < tiling.columns(); ++t, to += panel.width) {
        Vector v[16];
        TransformPixels<SourceTransform>(tiling.source, image, top, 2 * t - tiling.left, c, lanes,
                                         v);
#pragma GCC unroll 16
        for (int64_t i = 0; i < 16; ++i) lanes.StorePadded(to + i * position, v[i]);
      }
    });
  }
}

// The nine taps of a packed panel of weights, which are `tap` floats apart. With `flipped` the last
// one is the first.
struct PackedTaps {
  const float* data;
  int64_t tap;
  bool flipped;

  // u = G g G^T for the vector of numbers `k` of each tap: 9 loads and 28 operations.
  template <typename Lanes>
  HWY_INLINE void Transform(Lanes lanes, int64_t k, Vector u[16]) const {
    const auto load = [&](int64_t i, int64_t j) HWY_ATTR {
      const int64_t number = 3 * i + j;
      return lanes.LoadPadded(data + (flipped ? 8 - number : number) * tap + k);
    };
    TransformSquare<TapTransform>(load, u);
  }
};

// Transforms `count` rows of a packed panel of weights to [16] blocks of [EvenRows(count), width].
// The panel comes from the second-level cache, the result goes there, and that bandwidth is the
// likely bound.
template <typename P>
void TransformWeights(const PackedTaps& taps, int64_t count, int64_t width, P* to) {
  const int64_t numbers = count * width, position = EvenRows<P>(count) * width;
  ForEachVector(0, numbers, [&](int64_t k, auto lanes) HWY_ATTR {
    Vector u[16];
    taps.Transform(lanes, k, u);
#pragma GCC unroll 16
    for (int64_t p = 0; p < 16; ++p) lanes.StorePadded(to + p * position + k, u[p]);
  });
  for (int64_t p = 0; p < 16; ++p) {
    std::fill(to + p * position + numbers, to + (p + 1) * position, P());
  }
}

// The same with the rows in pairs: [16] blocks of [EvenRows(count) / 2, width, 2].
void TransformWeights(const PackedTaps& taps, int64_t count, int64_t width, Bfloat16* to) {
  const int64_t pairs = EvenRows<Bfloat16>(count) / 2;
  float* out = reinterpret_cast<float*>(to);
  for (int64_t pair = 0; pair < pairs; ++pair) {
    ForEachVector(0, width, [&](int64_t c, auto lanes) HWY_ATTR {
      const int64_t k = 2 * pair * width + c;
      Vector first[16], second[16];
      taps.Transform(lanes, k, first);
      if (2 * pair + 1 < count) {
        taps.Transform(lanes, k + width, second);
      } else {
        std::fill_n(second, 16, Zero());
      }
#pragma GCC unroll 16
      for (int64_t p = 0; p < 16; ++p) {
        lanes.StorePadded(out + (p * pairs + pair) * width + c, Pair(first[p], second[p]));
      }
    });
  }
}

// The same for each type, as one function per instruction set.
template <typename P>
void TransformPanel(const float* packed, int64_t tap, bool flipped, int64_t count, int64_t width,
                    P* to) {
  TransformWeights(PackedTaps{packed, tap, flipped}, count, width, to);
}

// Turns the products of tiles of one image, [16] blocks of [tiles, width] that are `position`
// floats apart, into pixels [lines, columns, width]. Both are in the second-level cache.
void TransformToPixels(int64_t lines, int64_t columns, const float* products, int64_t position,
                       int64_t width, float* pixels) {
  ForEachVector(0, width, [&](int64_t c, auto lanes) HWY_ATTR {
    const float* from = products + c;
    for (int64_t h = 0; h < lines; h += 2) {
      for (int64_t w = 0; w < columns; w += 2, from += width) {
        Vector y[4];
        const auto load = [&](int64_t i, int64_t j)
                              HWY_ATTR { return lanes.LoadPadded(from + (4 * i + j) * position); };
        TransformSquare<PixelTransform>(load, y);
        for (int64_t i = 0; i < 2 && h + i < lines; ++i) {
          float* to = pixels + ((h + i) * columns + w) * width + c;
          lanes.StorePadded(to, y[2 * i]);
          if (w + 1 < columns) lanes.StorePadded(to + width, y[2 * i + 1]);
        }
      }
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

// About the tiles of a block. With 32 columns their products take 400 KiB, and a chunk of
// transformed weights takes 256 KiB of a second-level cache of 1 MiB. An image of up to
// kMaxBlockTiles tiles is not divided.
constexpr int64_t kBlockTiles = 200;
constexpr int64_t kMaxBlockTiles = 256;
constexpr int64_t kChunkPanels = 8;
constexpr int64_t kMaxChunkChannels = 16 * kChunkPanels + 8;

// All rows of tiles of an image, or nearly equal parts of them.
int64_t TileRowsOfBlock(const WinogradTiling& tiling) {
  if (tiling.tiles() <= kMaxBlockTiles) return tiling.rows();
  const int64_t blocks = (tiling.tiles() + kBlockTiles - 1) / kBlockTiles;
  return (tiling.rows() + blocks - 1) / blocks;
}

}  // namespace

template <typename P>
WinogradProduct<P>::WinogradProduct(const WinogradTiling& tiling, int threads, Arena* arena)
    : tiling_(tiling),
      block_images_(std::clamp<int64_t>(kBlockTiles / tiling.tiles(), 1, tiling.result.n)),
      block_tile_rows_(TileRowsOfBlock(tiling)),
      image_blocks_((tiling.rows() + block_tile_rows_ - 1) / block_tile_rows_),
      block_tiles_(block_images_ * block_tile_rows_ * tiling.columns()),
      inner_(tiling.source.c),
      outer_(ResultPanels(tiling.result.c)),
      group_blocks_(std::clamp<int64_t>(
          kWinogradGroupNumbers / (kWinogradPositions * block_tiles_ * inner_.padded()), 1,
          blocks())),
      transformed_(
          arena->Numbers<P>(kWinogradPositions * group_blocks_ * block_tiles_ * inner_.padded())),
      packed_size_(9 * inner_.channels() * kMaxPanelWidth),
      weights_size_(kWinogradPositions * kMaxChunkChannels * kMaxPanelWidth),
      products_size_(kWinogradPositions * block_tiles_ * kMaxPanelWidth),
      pixels_size_(4 * block_tiles_ * kMaxPanelWidth),
      packed_(arena->Floats(threads * packed_size_)),
      weights_(arena->Numbers<P>(threads * weights_size_)),
      products_(arena->Floats(threads * products_size_)),
      pixels_(arena->Floats(threads * pixels_size_)) {}

template <typename P>
int64_t WinogradProduct<P>::blocks() const {
  return (tiling_.result.n + block_images_ - 1) / block_images_ * image_blocks_;
}

template <typename P>
int64_t WinogradProduct<P>::FirstTileRow(int64_t block) const {
  const int64_t row = block / image_blocks_ * block_images_ * tiling_.rows() +
                      block % image_blocks_ * block_tile_rows_;
  return std::min(row, tiling_.result.n * tiling_.rows());
}

template <typename P>
int64_t WinogradProduct<P>::FirstPixel(int64_t tile_row) const {
  const int64_t image = tile_row / tiling_.rows(), row = tile_row % tiling_.rows();
  return (image * tiling_.result.h + 2 * row) * tiling_.result.w;
}

template <typename P>
int64_t WinogradProduct<P>::RowsOf(int64_t block) const {
  return FirstPixel(FirstTileRow(block + 1)) - FirstPixel(FirstTileRow(block));
}

template <typename P>
void WinogradProduct<P>::Run(const TensorOf<P>* source, const WeightOperand& weights,
                             const TileFinisher& finisher, ThreadPool* pool) const {
  const Shape& from = tiling_.source;
  for (int64_t group = 0; group < blocks(); group += group_blocks_) {
    const int64_t end = std::min(group + group_blocks_, blocks());
    const int64_t first_row = FirstTileRow(group);
    KernelLoop(pool, FirstTileRow(end) - first_row, [&](int64_t i) {
      const int64_t image = (first_row + i) / tiling_.rows();
      PUSHPULL_FOR_CHOSEN_ISA(TransformTiles<P>)
      (tiling_, inner_, source + image * from.h * from.w * from.c, (first_row + i) % tiling_.rows(),
       group_blocks_ * block_tiles_, i * tiling_.columns(), transformed_);
    });
    // Neighbouring tasks read the same tiles, which then may stay in the last-level cache.
    KernelLoop(pool, (end - group) * outer_.count(), [&](int64_t task, int thread) {
      Task(group + task / outer_.count(), outer_[task % outer_.count()],
           first_row * tiling_.columns(), thread, weights, finisher);
    });
  }
}

template <typename P>
void WinogradProduct<P>::Task(int64_t block, const Panel& panel, int64_t first_tile, int thread,
                              const WeightOperand& weights, const TileFinisher& finisher) const {
  float* packed = packed_ + thread * packed_size_;
  P* transformed_weights = weights_ + thread * weights_size_;
  float* products = products_ + thread * products_size_;
  float* pixels = pixels_ + thread * pixels_size_;
  const int64_t begin = FirstTileRow(block), end = FirstTileRow(block + 1);
  const int64_t tiles = (end - begin) * tiling_.columns(), width = panel.width;
  const int64_t group_tiles = group_blocks_ * block_tiles_;
  weights.Pack(panel, packed);
  for (int64_t p = 0; p < inner_.count(); p += kChunkPanels) {
    const PanelRange range{p, std::min(inner_.count(), p + kChunkPanels)};
    const int64_t start = inner_[p].start;
    const Panel last = inner_[range.end - 1];
    const int64_t count = last.start + last.valid - start;
    PUSHPULL_FOR_CHOSEN_ISA(TransformPanel<P>)
    (packed + start * width, inner_.channels() * width,
     weights.role == WeightOperand::Role::kTransposed, count, width, transformed_weights);
    for (int64_t i = 0; i < kWinogradPositions; ++i) {
      MultiplyPanel(inner_, range, transformed_ + group_tiles * (i * inner_.padded() + start),
                    group_tiles, begin * tiling_.columns() - first_tile, tiles,
                    transformed_weights + i * EvenRows<P>(count) * width, panel.width,
                    products + i * tiles * width);
    }
  }
  // A block may have several images. Each is turned into pixels by itself.
  const int64_t first_pixel = FirstPixel(begin);
  for (int64_t row = begin; row < end;) {
    const int64_t next = std::min(end, (row / tiling_.rows() + 1) * tiling_.rows());
    const int64_t lines = (FirstPixel(next) - FirstPixel(row)) / tiling_.result.w;
    PUSHPULL_FOR_CHOSEN_ISA(TransformToPixels)
    (lines, tiling_.result.w, products + (row - begin) * tiling_.columns() * width, tiles * width,
     width, pixels + (FirstPixel(row) - first_pixel) * width);
    row = next;
  }
  finisher.Finish(panel, first_pixel, RowsOf(block), pixels, block);
}

template class WinogradProduct<float>;
template class WinogradProduct<Bfloat16>;
template class WinogradProduct<BfloatAsFloat>;

}  // namespace pushpull
#endif  // HWY_ONCE
