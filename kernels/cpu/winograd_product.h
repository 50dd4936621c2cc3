// The forward pass of a 3x3 convolution of stride 1, or the gradient of its input, by minimal
// filtering (winograd_tiling.h). A tile d of 4x4 pixels of the source and the 3x3 weights g are
// transformed,
//
//   V = B^T d B,  U = G g G^T,  result = A^T (sum over channels of U * V) A,
//
// where * multiplies numbers at the same of 16 positions. So there are 16 matrix products [tiles,
// inner] x [inner, outer], with 4 multiplications for each number of the result, not 9.
//
// The tiles are cut into blocks, each of some small images or of some rows of tiles of one image.
// All tiles of a group of blocks are transformed first. A task then computes one panel of outer
// channels for a block: it transforms the panel's weights, some hundred channels at a time,
// multiplies, and turns the sums into pixels while they are in its cache. The weights are packed
// and transformed anew for each block. Then the next group uses the same memory. The cut depends on
// the sizes only, never on the number of threads, and a pixel's bits do not depend on the other
// images.
#ifndef PUSHPULL_KERNELS_CPU_WINOGRAD_PRODUCT_H_
#define PUSHPULL_KERNELS_CPU_WINOGRAD_PRODUCT_H_

#include <cstdint>

#include "common/base/thread_pool.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/packed_numbers.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/tile_finisher.h"
#include "kernels/cpu/weight_panels.h"
#include "kernels/cpu/winograd_tiling.h"

namespace pushpull {

// A view of an Arena's memory that serves one caller at a time. P is the type of the transformed
// operands (kernels/cpu/packed_numbers.h); the result is of floats.
template <typename P>
class WinogradProduct {
 public:
  WinogradProduct(const WinogradTiling& tiling, int threads, Arena* arena);

  // The blocks of rows (pixels of the result) that a TileFinisher sees as `block`.
  int64_t blocks() const;
  int64_t RowsOf(int64_t block) const;

  // Computes the whole result and blocks until it is done. `source` has the shape tiling.source and
  // holds values, to which batch norm and activation have been applied.
  void Run(const TensorOf<P>* source, const WeightOperand& weights, const TileFinisher& finisher,
           ThreadPool* pool) const;

 private:
  // The rows of tiles of all images have numbers, image by image. This is the first one of a block.
  int64_t FirstTileRow(int64_t block) const;
  // The number of the first pixel of a row of tiles, among those of all images.
  int64_t FirstPixel(int64_t tile_row) const;
  // Computes a panel of outer channels for a block. `first_tile` is the first tile of its group.
  void Task(int64_t block, const Panel& panel, int64_t first_tile, int thread,
            const WeightOperand& weights, const TileFinisher& finisher) const;

  WinogradTiling tiling_;
  int64_t block_images_;     // the images of a block, or 1 if a block is part of an image
  int64_t block_tile_rows_;  // the rows of tiles of a block in one image
  int64_t image_blocks_;     // the blocks of an image, or 1 if a block is of whole images
  int64_t block_tiles_;      // at most
  Panels inner_, outer_;
  int64_t group_blocks_;
  P* transformed_;  // V: [16] blocks of the tiles of a group, packed in the panels of inner_
  // For each thread, where `width` is that of the task's panel:
  int64_t packed_size_, weights_size_, products_size_, pixels_size_;
  float* packed_;  // [9, inner, width]
  P* weights_;     // U: [16, channels of a chunk, width], with EvenRows rows, in pairs for Bfloat16
  float* products_;  // [16, tiles of a block, width]
  float* pixels_;    // [pixels of a block, width]
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_WINOGRAD_PRODUCT_H_
