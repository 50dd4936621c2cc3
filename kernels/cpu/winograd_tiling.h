// How the fast paths of 3x3 convolutions of stride 1 cut images into tiles, and which convolutions
// take them. They are minimal filtering, F(2x2, 3x3) and F(3x3, 2x2) of Winograd (Lavin and Gray,
// "Fast Algorithms for Convolutional Neural Networks", 2016): winograd_product.h computes the
// forward pass and the gradient of the input, winograd_weight_gradient.h that of the weights.
//
// The result is cut into tiles of 2x2 pixels, each of which reads a tile of 4x4 pixels of the
// source. Both operands, the tiles of the source and either the weights or the tiles of the
// result's gradient, are transformed to 16 numbers each, and numbers at the same position are
// multiplied, so there are 16 matrix products. The transforms are sums and halves. They make the
// rounding errors a few times as large as those of the direct sum
// (docs/decisions/0031-minimal-filtering.md has the figures). Plain values and pure functions.
#ifndef PUSHPULL_KERNELS_CPU_WINOGRAD_TILING_H_
#define PUSHPULL_KERNELS_CPU_WINOGRAD_TILING_H_

#include <cstdint>

#include "kernels/shape.h"

namespace pushpull {

inline constexpr int64_t kWinogradPositions = 16;
// About the transformed numbers of a tensor that exist at once, of a group of tiles: 16 MiB of
// floats, so that they may stay in a last-level cache. A group still has enough tasks for many
// threads: about 40 of WinogradProduct if there are as many inner as outer channels.
inline constexpr int64_t kWinogradGroupNumbers = 4 << 20;

// What is read and what is computed. The pixel (h, w) of `result` reads the source's pixels from
// (h - top, w - left) on, three rows and three columns; outside of the source these are zeros.
struct WinogradTiling {
  Shape source;
  Shape result;
  int64_t top;
  int64_t left;

  int64_t rows() const { return (result.h + 1) / 2; }  // of tiles in an image
  int64_t columns() const { return (result.w + 1) / 2; }
  int64_t tiles() const { return rows() * columns(); }  // of an image
  int64_t all_tiles() const { return result.n * tiles(); }
};

// Tiles begin to end - 1 of those of all images, in the order of their pixels.
struct TileRange {
  int64_t begin;
  int64_t end;

  int64_t count() const { return end - begin; }
};

// The forward pass of a 3x3 convolution of stride 1, and the gradient of its input.
WinogradTiling ForwardTiling(const ConvolutionShape& shape);
WinogradTiling BackwardTiling(const ConvolutionShape& shape);
// Whether minimal filtering computes the forward pass and the gradient of the input: the
// convolution is 3x3 of stride 1, has at least 64 channels on both sides, which pay for the
// transforms, and needs at most two thirds of the multiplications of the direct sum.
bool WinogradPays(const ConvolutionShape& shape);
// Whether minimal filtering also computes the gradient of the weights: each sum has at least 24
// terms, which are the tiles of all images, to pay for 16 sums instead of 9.
bool WinogradWeightGradientPays(const ConvolutionShape& shape);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_WINOGRAD_TILING_H_
