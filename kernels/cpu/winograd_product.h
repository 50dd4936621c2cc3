// 3x3 convolutions of stride 1 by minimal filtering, F(2x2, 3x3) of Winograd (Lavin and Gray, "Fast
// Algorithms for Convolutional Neural Networks", 2016). The result is cut into tiles of 2x2 pixels.
// A tile d of 4x4 pixels of the source and the 3x3 weights g are transformed,
//
//   V = B^T d B,  U = G g G^T,  result = A^T (sum over channels of U * V) A,
//
// where * multiplies numbers at the same of 16 positions. So there are 16 matrix products [tiles,
// inner] x [inner, outer], with 4 multiplications for each number of the result, not 9. The
// transforms are sums and halves. They make the result's rounding errors a few times as large as
// those of the direct sum (docs/decisions/0031-minimal-filtering.md has the figures).
//
// All tiles are transformed first. A task then computes one panel of outer channels for a block of
// images: it transforms the panel's weights, some hundred channels at a time, multiplies, and turns
// the sums into pixels while they are in its cache. The weights are packed and transformed anew for
// each block. The cut depends on the sizes only, never on the number of threads, and a pixel's bits
// do not depend on the other images.
#ifndef PUSHPULL_KERNELS_CPU_WINOGRAD_PRODUCT_H_
#define PUSHPULL_KERNELS_CPU_WINOGRAD_PRODUCT_H_

#include <cstdint>

#include "common/base/thread_pool.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/tile_finisher.h"
#include "kernels/cpu/weight_panels.h"
#include "kernels/shape.h"

namespace pushpull {

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
};

// The forward pass of a 3x3 convolution of stride 1, and the gradient of its input.
WinogradTiling ForwardTiling(const ConvolutionShape& shape);
WinogradTiling BackwardTiling(const ConvolutionShape& shape);
// Whether both passes of the convolution gain by it: it is 3x3 of stride 1, has enough channels to
// pay for the transforms, and a block of the images' tiles stays in the cache.
bool WinogradPays(const ConvolutionShape& shape);

// A view of an Arena's memory that serves one caller at a time. T, the type of the source and of
// the transformed operands, is float or Bfloat16; the result is of floats.
template <typename T>
class WinogradProduct {
 public:
  WinogradProduct(const WinogradTiling& tiling, int threads, Arena* arena);

  // The blocks of rows (pixels of the result) that a TileFinisher sees as `block`. The last may
  // have fewer rows.
  int64_t blocks() const { return (tiling_.result.n + images_ - 1) / images_; }
  int64_t block_rows() const { return images_ * tiling_.result.h * tiling_.result.w; }

  // Computes the whole result and blocks until it is done.
  void Run(const T* source, const WeightOperand& weights, const TileFinisher& finisher,
           ThreadPool* pool) const;

 private:
  void Task(int64_t task, int thread, const WeightOperand& weights,
            const TileFinisher& finisher) const;
  int64_t all_tiles() const { return tiling_.result.n * tiling_.tiles(); }

  WinogradTiling tiling_;
  int64_t images_;  // of a block
  Panels inner_, outer_;
  T* transformed_;  // V: [16] blocks of all tiles, packed in the panels of inner_
  // For each thread, where `width` is that of the task's panel:
  int64_t packed_size_, weights_size_, products_size_, pixels_size_;
  float* packed_;    // [9, inner, width]
  T* weights_;       // U: [16, channels of a chunk, width], with its rows in pairs for Bfloat16
  float* products_;  // [16, tiles of a block, width]
  float* pixels_;    // [pixels of a block, width]
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_WINOGRAD_PRODUCT_H_
