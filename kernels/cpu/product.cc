// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/product.h"

#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernel_loop.h"

namespace pushpull {

namespace {

constexpr int64_t kCacheNumbers = 64
                                  << 10;  // a block of floats: half of a 512 KiB second-level cache
constexpr int64_t kPanelRows = 384;       // the rows of a block with kByPanels
constexpr int64_t kMaxTasks = 64;         // of Run; more would only add overhead
// About the rows of a block with kBySlices. One slice of such a block and its results for 288
// channels fill half of a second-level cache of 1 MiB.
constexpr int64_t kSliceRows = 192;
constexpr int64_t kSliceChannels = 384;
constexpr int64_t kMaxSliceChannels = kSliceChannels + 8;

// The rows of a block with kBySlices: such that all blocks are nearly equal and two or four threads
// get equally many.
int64_t EvenBlockRows(int64_t rows) {
  const int64_t blocks = 4 * std::max<int64_t>(1, (rows + 2 * kSliceRows) / (4 * kSliceRows));
  return (rows + blocks - 1) / blocks;
}

}  // namespace

int64_t BlockRows(int64_t numbers_per_row) {
  return numbers_per_row * 96 <= kCacheNumbers ? 96 : 48;
}

Cut ChooseCut(int64_t rows, int64_t weights, int64_t block_rows) {
  return rows >= 4 * block_rows && weights <= kCacheNumbers ? Cut::kByBlocks : Cut::kByPanels;
}

Cut ChooseCutOfPatches(int64_t rows, int64_t weights, int64_t block_rows) {
  const Cut cut = ChooseCut(rows, weights, block_rows);
  return cut == Cut::kByPanels && rows > kPanelRows ? Cut::kBySlices : cut;
}

template <typename P>
Product<P>::Product(int64_t rows, const Panels& inner, int64_t outer, Cut cut, int64_t block_rows,
                    int threads, Arena* arena)
    : rows_(rows),
      inner_(inner),
      outer_(ResultPanels(outer)),
      cut_(cut),
      block_rows_(cut == Cut::kByBlocks   ? block_rows
                  : cut == Cut::kBySlices ? EvenBlockRows(rows)
                                          : kPanelRows),
      b_rows_(EvenRows<P>(inner.channels())),
      packed_b_(arena->Numbers<P>(
          b_rows_ * (cut == Cut::kByPanels ? threads * kMaxPanelWidth : outer_.padded()))),
      tiles_(arena->Floats(threads * block_rows_ *
                           (cut == Cut::kBySlices ? outer_.padded() : kMaxPanelWidth))) {}

template <typename P>
int64_t Product<P>::RowsOf(int64_t block) const {
  return std::min(block_rows_, rows_ - block * block_rows_);
}

template <typename P>
int64_t Product<P>::ScratchNumbers(int threads) const {
  if (cut_ == Cut::kBySlices) return threads * block_rows_ * kMaxSliceChannels;
  return inner_.padded() * (cut_ == Cut::kByBlocks ? threads * block_rows_ : EvenRows<P>(rows_));
}

template <typename P>
void Product<P>::Run(const RowSource<P>& a, const WeightOperand& b, const TileFinisher& finisher,
                     P* scratch, ThreadPool* pool) const {
  if (cut_ == Cut::kByPanels) {
    KernelLoop(pool, (rows_ + kPackRows - 1) / kPackRows, [&](int64_t i) {
      const int64_t first = i * kPackRows;
      a.Pack(inner_.all(), first, std::min(kPackRows, rows_ - first), scratch, EvenRows<P>(rows_),
             first);
    });
    KernelLoop(pool, panel_tasks(), [&](int64_t task, int thread) {
      MultiplyPanelTask(scratch, task, thread, b, finisher);
    });
    return;
  }
  PackWeights(b, pool);
  if (cut_ == Cut::kBySlices) {
    KernelLoop(pool, blocks(), [&](int64_t block, int thread) {
      P* slice = scratch + thread * block_rows_ * kMaxSliceChannels;
      MultiplySlices(a, block, thread, finisher, slice);
    });
    return;
  }
  const int64_t per_task = (blocks() + kMaxTasks - 1) / kMaxTasks;
  KernelLoop(pool, (blocks() + per_task - 1) / per_task, [&](int64_t task, int thread) {
    P* packed = scratch + thread * block_rows_ * inner_.padded();
    const int64_t end = std::min(blocks(), (task + 1) * per_task);
    for (int64_t block = task * per_task; block < end; ++block) {
      a.Pack(inner_.all(), block * block_rows_, RowsOf(block), packed, block_rows_, 0);
      Prefetcher prefetcher;
      if (block + 1 < end) a.AddTo(&prefetcher, (block + 1) * block_rows_, RowsOf(block + 1));
      MultiplyBlock(packed, block, thread, finisher, &prefetcher);
    }
  });
}

template <typename P>
void Product<P>::PackWeights(const WeightOperand& b, ThreadPool* pool) const {
  const auto pack = [&](int64_t p) { b.Pack(outer_[p], packed_b_ + b_rows_ * outer_[p].start); };
  // Waking the other threads costs more than packing a small matrix.
  if (b_rows_ * outer_.padded() <= 4096) {
    for (int64_t p = 0; p < outer_.count(); ++p) pack(p);
  } else {
    KernelLoop(pool, outer_.count(), pack);
  }
}

template <typename P>
void Product<P>::MultiplyBlock(const P* a, int64_t block, int thread, const TileFinisher& finisher,
                               Prefetcher* prefetcher) const {
  float* tile = tiles_ + thread * block_rows_ * kMaxPanelWidth;
  const int64_t rows = RowsOf(block);
  for (int64_t p = 0; p < outer_.count(); ++p) {
    const Panel panel = outer_[p];
    MultiplyPanel(inner_, inner_.all(), a, block_rows_, 0, rows, packed_b_ + b_rows_ * panel.start,
                  panel.width, tile, prefetcher);
    finisher.Finish(panel, block * block_rows_, rows, tile, block);
  }
}

template <typename P>
void Product<P>::MultiplySlices(const RowSource<P>& a, int64_t block, int thread,
                                const TileFinisher& finisher, P* slice) const {
  float* tiles = tiles_ + thread * block_rows_ * outer_.padded();
  const int64_t first = block * block_rows_, rows = RowsOf(block);
  const int64_t panels = inner_.PanelsOf(kSliceChannels);
  for (int64_t p = 0; p < inner_.count(); p += panels) {
    const PanelRange range{p, std::min(inner_.count(), p + panels)};
    a.Pack(range, first, rows, slice, block_rows_, 0);
    for (int64_t o = 0; o < outer_.count(); ++o) {
      const Panel panel = outer_[o];
      MultiplyPanel(inner_, range, slice, block_rows_, 0, rows,
                    packed_b_ + b_rows_ * panel.start + inner_[p].start * panel.width, panel.width,
                    tiles + block_rows_ * panel.start);
    }
  }
  for (int64_t o = 0; o < outer_.count(); ++o) {
    const Panel panel = outer_[o];
    finisher.Finish(panel, first, rows, tiles + block_rows_ * panel.start, block);
  }
}

template <typename P>
void Product<P>::MultiplyPanelTask(const P* a, int64_t task, int thread, const WeightOperand& b,
                                   const TileFinisher& finisher) const {
  float* tile = tiles_ + thread * block_rows_ * kMaxPanelWidth;
  P* packed = packed_b_ + thread * b_rows_ * kMaxPanelWidth;
  const Panel panel = outer_[task % outer_.count()];
  const int64_t block = task / outer_.count();
  b.Pack(panel, packed);
  MultiplyPanel(inner_, inner_.all(), a, EvenRows<P>(rows_), block * block_rows_, RowsOf(block),
                packed, panel.width, tile);
  finisher.Finish(panel, block * block_rows_, RowsOf(block), tile, block);
}

template class Product<float>;
template class Product<Bfloat16>;
template class Product<BfloatAsFloat>;

}  // namespace pushpull
