// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/product.h"

#include <algorithm>

#include "kernels/cpu/gemm.h"

namespace pushpull {

namespace {

constexpr int64_t kCacheFloats = 64 << 10;  // a block: half of a 512 KiB second-level cache
constexpr int64_t kPackRows = 48;           // the rows that a task of PackAll packs
constexpr int64_t kPanelRows = 384;         // the rows of a block with kByPanels
constexpr int64_t kMostTasks = 64;          // of Run; more would only add overhead

}  // namespace

int64_t BlockRows(int64_t floats_per_row) { return floats_per_row * 96 <= kCacheFloats ? 96 : 48; }

Cut ChooseCut(int64_t rows, int64_t weights, int64_t block_rows) {
  return rows >= 4 * block_rows && weights <= kCacheFloats ? Cut::kByBlocks : Cut::kByPanels;
}

void PackAll(const RowSource& source, int64_t rows, float* out, ThreadPool* pool) {
  pool->ParallelFor((rows + kPackRows - 1) / kPackRows, [&](int64_t i) {
    const int64_t first = i * kPackRows;
    source.Pack(first, std::min(kPackRows, rows - first), out, rows, first);
  });
}

Product::Product(int64_t rows, int64_t inner, int64_t outer, Cut cut, int64_t block_rows,
                 int threads, Arena* arena)
    : rows_(rows),
      inner_(inner),
      outer_(outer),
      cut_(cut),
      block_rows_(cut == Cut::kByBlocks ? block_rows : kPanelRows) {
  thread_floats_ = block_rows_ * kMaxPanelWidth;
  if (cut_ == Cut::kByBlocks) {
    packed_b_ = arena->Floats(inner * outer_.padded());
  } else {
    thread_floats_ += inner * kMaxPanelWidth;
  }
  thread_scratch_ = arena->Floats(threads * thread_floats_);
}

int64_t Product::RowsOf(int64_t block) const {
  return std::min(block_rows_, rows_ - block * block_rows_);
}

int64_t Product::ScratchFloats(int threads) const {
  return inner_.padded() * (cut_ == Cut::kByBlocks ? threads * block_rows_ : rows_);
}

void Product::Run(const RowSource& a, const WeightOperand& b, const TileFinisher& finisher,
                  float* scratch, ThreadPool* pool) const {
  if (cut_ == Cut::kByPanels) {
    PackAll(a, rows_, scratch, pool);
    pool->ParallelFor(panel_tasks(), [&](int64_t task, int thread) {
      MultiplyPanelTask(scratch, task, thread, b, finisher);
    });
    return;
  }
  PackWeights(b, pool);
  const int64_t per_task = (blocks() + kMostTasks - 1) / kMostTasks;
  pool->ParallelFor((blocks() + per_task - 1) / per_task, [&](int64_t task, int thread) {
    float* packed = scratch + thread * block_rows_ * inner_.padded();
    const int64_t end = std::min(blocks(), (task + 1) * per_task);
    for (int64_t block = task * per_task; block < end; ++block) {
      a.Pack(block * block_rows_, RowsOf(block), packed, block_rows_, 0);
      MultiplyBlock(packed, block, thread, finisher);
    }
  });
}

void Product::PackWeights(const WeightOperand& b, ThreadPool* pool) const {
  const int64_t inner = inner_.channels();
  const auto pack = [&](int64_t p) { b.Pack(outer_[p], packed_b_ + inner * outer_[p].start); };
  // Waking the other threads costs more than packing a small matrix.
  if (inner * outer_.padded() <= 4096) {
    for (int64_t p = 0; p < outer_.count(); ++p) pack(p);
  } else {
    pool->ParallelFor(outer_.count(), pack);
  }
}

void Product::MultiplyBlock(const float* a, int64_t block, int thread,
                            const TileFinisher& finisher) const {
  float* tile = thread_scratch_ + thread * thread_floats_;
  const int64_t rows = RowsOf(block);
  for (int64_t p = 0; p < outer_.count(); ++p) {
    const Panel panel = outer_[p];
    MultiplyPanel(inner_, a, block_rows_, 0, rows, packed_b_ + inner_.channels() * panel.start,
                  panel.width, tile);
    finisher.Finish(panel, block * block_rows_, rows, tile, block);
  }
}

void Product::MultiplyPanelTask(const float* a, int64_t task, int thread, const WeightOperand& b,
                                const TileFinisher& finisher) const {
  float* tile = thread_scratch_ + thread * thread_floats_;
  float* packed = tile + block_rows_ * kMaxPanelWidth;
  const Panel panel = outer_[task % outer_.count()];
  const int64_t block = task / outer_.count();
  b.Pack(panel, packed);
  MultiplyPanel(inner_, a, rows_, block * block_rows_, RowsOf(block), packed, panel.width, tile);
  finisher.Finish(panel, block * block_rows_, RowsOf(block), tile, block);
}

}  // namespace pushpull
