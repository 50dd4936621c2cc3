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
// The tiles of the output's gradient are transformed first. A task then computes the gradients of a
// slice of one or more panels of input channels: it transforms the slice's tiles, multiplies them
// position by position with all panels of the output's gradient, and turns the sums into gradients.
// The cut depends on the sizes only, so results do not depend on the number of threads.
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
  void SliceTask(const TensorOf<P>* x, const PanelRange& range, int64_t copy,
                 float* dweights) const;
  // The sums of one position: transpose(x) * dy for a range of panels of x.
  void MultiplyTiles(const PanelRange& range, const P* x, const P* dy, float* sums) const;

  WinogradTiling tiling_;
  int64_t rows_;  // of a transformed operand: EvenRows of all tiles
  Panels inner_, outer_;
  int64_t slices_;
  ScratchCopies copies_;
  int64_t x_size_;                     // of a copy
  int64_t sums_position_, sums_size_;  // of a position and of a copy
  P* transformed_dy_;                  // W: [16] blocks of rows, packed in the panels of outer_
  P* transformed_x_;                   // V: for each copy the same for the panels of a slice
  float* sums_;  // for each copy [16] blocks of [channels of a slice, padded outer]
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_WINOGRAD_WEIGHT_GRADIENT_H_
