// A matrix product a[rows, inner] x b[inner, outer] whose result goes through a TileFinisher
// (README.md shows the way of a layer). It is cut into tasks in one of three ways:
//
//   kByBlocks   for many rows. The weights b are packed once. A task packs a block of rows into its
//               cache and multiplies it by all panels of b.
//   kBySlices   for many rows that are too long for a cache, like the patches of a 3x3 convolution
//               with many channels. The weights b are packed once. A task takes a block of rows and
//               goes through it slice by slice: it packs some hundred channels of the block into
//               its cache and adds their product with all panels of b to the block's result. So the
//               patches as a whole never exist.
//   kByPanels   for few rows and large weights. All rows are packed once. A task packs one panel of
//               b and multiplies a block of rows by it.
//
// The cut depends on the sizes only, never on the number of threads. A Product is a view of an
// Arena's memory and serves one caller at a time. P is the type of the packed numbers
// (kernels/cpu/packed_numbers.h); the result is of floats.
#ifndef PUSHPULL_KERNELS_CPU_PRODUCT_H_
#define PUSHPULL_KERNELS_CPU_PRODUCT_H_

#include <cstdint>

#include "common/base/thread_pool.h"
#include "kernels/cpu/arena.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/row_source.h"
#include "kernels/cpu/tile_finisher.h"
#include "kernels/cpu/weight_panels.h"

namespace pushpull {

enum class Cut { kByBlocks, kBySlices, kByPanels };

// The rows that a task packs where all rows are packed first.
inline constexpr int64_t kPackRows = 48;

// The rows per block (96 or 48), chosen so that a block with this many numbers per row stays in the
// second-level cache if possible. This function and the two below count numbers, not bytes, so
// products of all types of numbers are cut alike.
int64_t BlockRows(int64_t numbers_per_row);
// kByBlocks if there are at least four blocks and the weights fit in the cache, else kByPanels.
Cut ChooseCut(int64_t rows, int64_t weights, int64_t block_rows);
// The same, but kBySlices instead of kByPanels unless there are few rows.
Cut ChooseCutOfPatches(int64_t rows, int64_t weights, int64_t block_rows);

template <typename P>
class Product {
 public:
  // `inner` are the panels of the source of a.
  Product(int64_t rows, const Panels& inner, int64_t outer, Cut cut, int64_t block_rows,
          int threads, Arena* arena);

  // The blocks of rows that a TileFinisher sees as `block`. The last may have fewer rows.
  int64_t blocks() const { return (rows_ + block_rows_ - 1) / block_rows_; }
  int64_t RowsOf(int64_t block) const;

  // Computes the whole product and blocks until it is done. `scratch` has ScratchNumbers() numbers
  // for packed rows of a.
  void Run(const RowSource<P>& a, const WeightOperand& b, const TileFinisher& finisher, P* scratch,
           ThreadPool* pool) const;
  int64_t ScratchNumbers(int threads) const;

  // The parts of Run, for callers that do more work in the same tasks. `thread` is the number of
  // the pool's thread, which selects the scratch memory.
  //
  // kByBlocks: call PackWeights, then MultiplyBlock for each block with its packed rows `a`. It
  // does steps of `prefetcher`, unless that is null.
  void PackWeights(const WeightOperand& b, ThreadPool* pool) const;
  void MultiplyBlock(const P* a, int64_t block, int thread, const TileFinisher& finisher,
                     Prefetcher* prefetcher) const;
  // kByPanels: call MultiplyPanelTask for each of the panel_tasks() tasks with all packed rows `a`,
  // a block of EvenRows of them.
  int64_t panel_tasks() const { return blocks() * outer_.count(); }
  void MultiplyPanelTask(const P* a, int64_t task, int thread, const WeightOperand& b,
                         const TileFinisher& finisher) const;

 private:
  void MultiplySlices(const RowSource<P>& a, int64_t block, int thread,
                      const TileFinisher& finisher, P* slice) const;

  int64_t rows_;
  Panels inner_, outer_;
  Cut cut_;
  int64_t block_rows_;
  int64_t b_rows_;         // of a packed panel of b
  P* packed_b_ = nullptr;  // kByPanels: one panel per thread; else all panels
  float* tiles_ =
      nullptr;  // per thread, the result of a block: kBySlices: for all panels; else one
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_PRODUCT_H_
