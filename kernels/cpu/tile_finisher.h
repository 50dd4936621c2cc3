// Finishes a tile of a matrix product while it is still in the first-level cache and writes it to
// its tensor. The forward pass adds the bias and computes statistics. The backward pass adds
// dx.add, the gradient that reaches x by another way through the network, multiplies by the slope
// of the activation, and adds to the sums for batch norm. Finishers are immutable views; Finish may
// run on several threads at once. T, the type of the tensors, is float or Bfloat16; tiles are of
// floats.
#ifndef PUSHPULL_KERNELS_CPU_TILE_FINISHER_H_
#define PUSHPULL_KERNELS_CPU_TILE_FINISHER_H_

#include <cstdint>

#include "kernels/cpu/channel_coefficients.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/panels.h"
#include "kernels/operators.h"

namespace pushpull {

class TileFinisher {
 public:
  virtual ~TileFinisher() = default;
  // tile[rows, panel.width] is the product for rows [first_row, first_row + rows) and the channels
  // of `panel`. The sums of these rows go to number `block` of the BlockSums.
  virtual void Finish(const Panel& panel, int64_t first_row, int64_t rows, const float* tile,
                      int64_t block) const = 0;
};

// Writes y = tile + bias and the statistics of the block, which are those of y as stored.
template <typename T>
class ForwardFinisher : public TileFinisher {
 public:
  struct Tensors {
    int64_t rows;
    int64_t channels;
    const float* bias;  // may be null
    T* y;               // [rows, channels]
    const BlockSums* sums;
  };
  // `sums` is null if no statistics are wanted.
  ForwardFinisher(int64_t rows, int64_t channels, const float* bias, T* y, const BlockSums* sums)
      : tensors_{rows, channels, bias, y, sums} {}
  void Finish(const Panel& panel, int64_t first_row, int64_t rows, const float* tile,
              int64_t block) const override;

 private:
  const Tensors tensors_;
};

// The channels [start, start + count) of a tile whose rows are `stride` floats apart (0: all rows
// are the same memory). A row must be readable up to a multiple of kPanelAlignment floats. Row r of
// the tile belongs to row first_row + r * row_step of the tensor.
struct TileSpan {
  int64_t start;
  int64_t count;
  int64_t stride;
  int64_t row_step = 1;
};

// Writes dx.dz = (tile + dx.add) * activation'(z), and the batch norm sums of the block.
template <typename T>
class BackwardFinisher : public TileFinisher {
 public:
  struct Tensors {
    const Lazy<T>& x;
    const LazyCoefficients& coefficients;
    const InputGradient<T>& dx;
    const BlockSums& sums;
  };
  // `coefficients` and `sums` are used only if x has a batch norm.
  BackwardFinisher(const Lazy<T>& x, const LazyCoefficients& coefficients,
                   const InputGradient<T>& dx, const BlockSums& sums)
      : tensors_{x, coefficients, dx, sums} {}

  void Finish(const Panel& panel, int64_t first_row, int64_t rows, const float* tile,
              int64_t block) const override {
    FinishRows({panel.start, panel.valid, panel.width}, first_row, rows, tile, block,
               Store::kWrite);
  }

  // As Finish, for a tile of any width. With kAdd the sums are added to those that earlier rows of
  // the block have left in `block`.
  void FinishRows(const TileSpan& span, int64_t first_row, int64_t rows, const float* tile,
                  int64_t block, Store store) const;

 private:
  const Tensors tensors_;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_TILE_FINISHER_H_
