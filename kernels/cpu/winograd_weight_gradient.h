// The gradient of the weights of a 3x3 convolution of stride 1, by minimal filtering
// (winograd_tiling.h). A tile d of 4x4 pixels of the convolution's input and the tile g of 2x2
// pixels of its output's gradient are transformed,
//
//   V = B^T d B,  W = G g G^T,  gradient = A^T (sum over tiles of V * W) A,
//
// where * multiplies numbers at the same of 16 positions. So there are 16 matrix products
// transpose([tiles, inner]) x [tiles, outer]: 16 multiplications for each tile and pair of channels
// instead of 36.
//
// The tiles of the output's gradient are transformed first, or a group of them if there are many. A
// task then computes the sums of a slice of one or more panels of input channels: it transforms the
// slice's tiles and multiplies them position by position with all panels of the output's gradient.
// The next group uses the same memory and adds to the sums. After the last one, each task turns its
// sums into gradients. The cut depends on the sizes only, so results do not depend on the number of
// threads.
#ifndef PUSHPULL_KERNELS_CPU_WINOGRAD_WEIGHT_GRADIENT_H_
#define PUSHPULL_KERNELS_CPU_WINOGRAD_WEIGHT_GRADIENT_H_

#include <cstdint>

#include "common/base/thread_pool.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/packed_numbers.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/winograd_tiling.h"

namespace pushpull {

// A view of an Arena's memory that serves one caller at a time. P is the type of the
// transformed operands (kernels/cpu/packed_numbers.h); the result is of floats.
template <typename P>
class WinogradWeightGradient {
 public:
  // `tiling` is that of the forward pass.
  WinogradWeightGradient(const WinogradTiling& tiling, int threads, Arena* arena);

  // Computes the whole gradient, [3, 3, inner, outer], and blocks until it is done. x is the input
  // and has the shape of the tiling's source; dy has that of its result.
  void Run(const TensorOf<P>* x, const TensorOf<P>* dy, float* dweights, ThreadPool* pool) const;

 private:
  // Adds a group of tiles to the `sums` of a slice, which the first group writes.
  void SliceTask(const TensorOf<P>* x, const PanelRange& slice, const TileRange& tiles,
                 P* transformed_x, float* sums) const;
  // The same for one position: transpose(x) * dy for a range of panels of x.
  void MultiplyTiles(const PanelRange& range, const TileRange& tiles, const P* x, const P* dy,
                     float* sums) const;
  // Turns the sums of a slice into gradients.
  void SumsToTaps(const PanelRange& slice, const float* sums, float* dweights) const;

  WinogradTiling tiling_;
  int64_t group_tiles_;
  int64_t rows_;  // of a transformed operand: EvenRows of the tiles of a group
  Panels inner_, outer_;
  int64_t slices_;
  ScratchCopies copies_;
  int64_t x_size_;                     // of a copy
  int64_t sums_position_, sums_size_;  // of a position and of a slice
  P* transformed_dy_;                  // W: [16] blocks of rows, packed in the panels of outer_
  P* transformed_x_;                   // V: for each copy the same for the panels of a slice
  // [16] blocks of [channels of a slice, padded outer]: for each copy, or if there are several
  // groups, for each slice.
  float* sums_;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_WINOGRAD_WEIGHT_GRADIENT_H_
