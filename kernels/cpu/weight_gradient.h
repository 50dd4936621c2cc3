// The gradient of weights: dweights[inner, outer] = transpose(x) * dy, summed over all rows. It is
// cut into tasks under the same names as Product (product.h), but what a task has is different:
//
//   kByBlocks   The rows are cut into fixed partitions. A task computes the partial sum of one
//               partition, block by block; the partial sums are added in order at the end.
//   kBySlices   All rows of dy are packed first. A task computes the gradients of a slice of some
//               panels of x: it packs the slice block by block of rows into its cache and adds the
//               products with all panels of dy.
//   kByPanels   All rows of x and dy are packed first. A task computes the gradients of one panel
//               of x, summed over all rows.
//
// A WeightGradient is a view of an Arena's memory and serves one caller at a time. Results do not
// depend on the number of threads. P is the type of the packed numbers
// (kernels/cpu/packed_numbers.h); the gradient is of floats.
#ifndef PUSHPULL_KERNELS_CPU_WEIGHT_GRADIENT_H_
#define PUSHPULL_KERNELS_CPU_WEIGHT_GRADIENT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

#include "common/base/thread_pool.h"
#include "kernels/cpu/product.h"

namespace pushpull {

template <typename P>
class WeightGradient {
 public:
  WeightGradient(int64_t rows, int64_t inner, int64_t outer, Cut cut, int64_t block_rows,
                 int threads, Arena* arena);

  // kByBlocks: computes the whole gradient and blocks until it is done. It calls
  // also(packed dy, block, thread, prefetcher) for each block while that is in the cache, on the
  // pool's threads, so that the caller can compute the input gradient from the same packed rows.
  // `prefetcher` holds the memory of the next block, for steps between the products.
  using AlsoFn = absl::FunctionRef<void(const P*, int64_t, int, Prefetcher*)>;
  void RunByBlocks(const RowSource<P>& x, const RowSource<P>& dy, float* dweights, ThreadPool* pool,
                   AlsoFn also) const;

  // kBySlices: computes the whole gradient and blocks until it is done.
  void RunBySlices(const RowSource<P>& x, const RowSource<P>& dy, float* dweights,
                   ThreadPool* pool) const;

  // kByPanels: call Pack, then PanelTask for each of the panel_tasks() tasks. packed_dy() holds all
  // packed rows of dy, a block of EvenRows of them, which the caller may use as well.
  void Pack(const RowSource<P>& x, const RowSource<P>& dy, ThreadPool* pool) const;
  const P* packed_dy() const { return packed_dy_; }
  int64_t panel_tasks() const { return inner_.count(); }
  void PanelTask(int64_t task, float* dweights) const;

 private:
  int64_t partitions() const;
  void SliceTask(const RowSource<P>& x, const PanelRange& range, int thread, float* dweights) const;
  void AddUp(float* dweights, ThreadPool* pool) const;

  int64_t rows_;
  Panels inner_, outer_;
  int64_t block_rows_;
  P* packed_x_;   // one block or slice per thread; kByPanels: all rows
  P* packed_dy_;  // kByBlocks: one block per thread; else all rows
  // The same rows as MultiplyTransposed wants them: in pairs for Bfloat16, else the same memory.
  P* paired_x_;
  P* paired_dy_;
  // Sums before they are complete. kByBlocks: [partitions, inner, padded outer]; kBySlices: for
  // each thread [channels of a slice, padded outer].
  float* partial_ = nullptr;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_WEIGHT_GRADIENT_H_
