// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/weight_gradient.h"

#include <algorithm>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/gemm.h"

namespace pushpull {

namespace {

constexpr int64_t kMostPartitions = 16;
constexpr int64_t kPartialFloats = 256 << 10;  // all partial sums together, if possible
constexpr int64_t kFewestPartitions = 4;

}  // namespace

WeightGradient::WeightGradient(int64_t rows, int64_t inner, int64_t outer, Cut cut,
                               int64_t block_rows, int threads, Arena* arena)
    : rows_(rows), inner_(inner), outer_(outer), block_rows_(block_rows) {
  const int64_t packed_rows = cut == Cut::kByBlocks ? threads * block_rows : rows;
  packed_x_ = arena->Floats(packed_rows * inner_.padded());
  packed_dy_ = arena->Floats(packed_rows * outer_.padded());
  if (cut == Cut::kByBlocks) partial_ = arena->Floats(partitions() * inner * outer_.padded());
}

int64_t WeightGradient::partitions() const {
  const int64_t blocks = (rows_ + block_rows_ - 1) / block_rows_;
  const int64_t fit = kPartialFloats / (inner_.channels() * outer_.padded());
  return std::min(blocks, std::clamp(fit, kFewestPartitions, kMostPartitions));
}

void WeightGradient::RunByBlocks(const RowSource& x, const RowSource& dy, float* dweights,
                                 ThreadPool* pool,
                                 absl::FunctionRef<void(const float*, int64_t, int)> also) const {
  const int64_t blocks = (rows_ + block_rows_ - 1) / block_rows_;
  const int64_t ldc = outer_.padded();
  pool->ParallelFor(partitions(), [&](int64_t partition, int thread) {
    float* block_x = packed_x_ + thread * block_rows_ * inner_.padded();
    float* block_dy = packed_dy_ + thread * block_rows_ * outer_.padded();
    float* sum = partial_ + partition * inner_.channels() * ldc;
    const int64_t begin = blocks * partition / partitions();
    const int64_t end = blocks * (partition + 1) / partitions();
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * block_rows_, rows = std::min(block_rows_, rows_ - first);
      dy.Pack(first, rows, block_dy, block_rows_, 0);
      x.Pack(first, rows, block_x, block_rows_, 0);
      also(block_dy, block, thread);
      const Store store = block == begin ? Store::kWrite : Store::kAdd;
      for (int64_t i = 0; i < inner_.count(); ++i) {
        const Panel in = inner_[i];
        for (int64_t o = 0; o < outer_.count(); ++o) {
          const Panel out = outer_[o];
          MultiplyTransposed(block_x + block_rows_ * in.start, in.width, in.valid,
                             block_dy + block_rows_ * out.start, out.width, rows,
                             sum + in.start * ldc + out.start, ldc, store);
        }
      }
    }
  });
  AddUp(dweights, pool);
}

// Adds the partial sums of all partitions, in order, so the result has the same bits for any number
// of threads.
void WeightGradient::AddUp(float* dweights, ThreadPool* pool) const {
  const int64_t inner = inner_.channels(), outer = outer_.channels(), ldc = outer_.padded();
  const int64_t rows_per_task = std::max<int64_t>(1, 4096 / ldc);
  pool->ParallelFor((inner + rows_per_task - 1) / rows_per_task, [&](int64_t task) {
    const int64_t end = std::min(inner, (task + 1) * rows_per_task);
    for (int64_t k = task * rows_per_task; k < end; ++k) {
      AddRows(partial_ + k * ldc, partitions(), inner * ldc, outer, dweights + k * outer);
    }
  });
}

void WeightGradient::Pack(const RowSource& x, const RowSource& dy, ThreadPool* pool) const {
  PackAll(x, rows_, packed_x_, pool);
  PackAll(dy, rows_, packed_dy_, pool);
}

void WeightGradient::PanelTask(int64_t task, int, float* dweights) const {
  const int64_t outer = outer_.channels();
  const Panel in = inner_[task];
  const float* x = packed_x_ + rows_ * in.start;
  for (int64_t o = 0; o < outer_.count(); ++o) {
    const Panel out = outer_[o];
    const float* dy = packed_dy_ + rows_ * out.start;
    float* to = dweights + in.start * outer + out.start;
    if (out.valid == out.width) {
      MultiplyTransposed(x, in.width, in.valid, dy, out.width, rows_, to, outer, Store::kWrite);
      continue;
    }
    // The product writes whole vectors, which would run over into the next row of dweights.
    alignas(32) float tile[kMaxPanelWidth * kMaxPanelWidth];
    MultiplyTransposed(x, in.width, in.valid, dy, out.width, rows_, tile, out.width, Store::kWrite);
    for (int i = 0; i < in.valid; ++i) {
      std::copy(tile + i * out.width, tile + i * out.width + out.valid, to + i * outer);
    }
  }
}

}  // namespace pushpull
