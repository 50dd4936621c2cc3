// The gradient of the input of a dense convolution. Each phase of the input (input_phases.h) is a
// product of its own: patches of dy are multiplied by the weights of the taps that read the phase's
// pixels. With stride 1 there is one phase. With a larger stride, one product for all pixels would
// mostly multiply zeros: a 3x3 convolution of stride 2 takes a quarter of its multiplications.
// Pixels that no tap reads only get what reaches them in other ways (dx.add).
//
// A view of an Arena's memory that serves one caller at a time. P is the type of the packed numbers
// (kernels/cpu/packed_numbers.h).
#ifndef PUSHPULL_KERNELS_CPU_PHASED_INPUT_GRADIENT_H_
#define PUSHPULL_KERNELS_CPU_PHASED_INPUT_GRADIENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/thread_pool.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/input_phases.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/tile_finisher.h"
#include "kernels/operators.h"

namespace pushpull {

template <typename P>
class PhasedInputGradient {
 public:
  PhasedInputGradient(const ConvolutionShape& shape, int threads, Arena* arena);

  // The blocks of rows that `finisher` of Run sees, those of all phases.
  int64_t blocks() const { return blocks_; }

  // Computes the product of dy [shape.out()] with the weights and gives it to `finisher`. `weights`
  // has the role kTransposed and all taps. Blocks until it is done.
  void Run(const TensorOf<P>* dy, const WeightOperand& weights,
           const BackwardFinisher<TensorOf<P>>& finisher, ThreadPool* pool) const;

 private:
  struct PhaseProduct {
    InputPhase phase;
    int64_t first_block;
    std::optional<Product<P>> product;  // nothing if the phase has no taps
    P* scratch = nullptr;
  };

  ConvolutionShape shape_;
  std::vector<PhaseProduct> products_;  // they use the same memory, one after the other
  int64_t blocks_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_PHASED_INPUT_GRADIENT_H_
