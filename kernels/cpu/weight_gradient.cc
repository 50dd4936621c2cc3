// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/weight_gradient.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/kernel_loop.h"

namespace pushpull {

namespace {

constexpr int64_t kMaxPartitions = 16;
constexpr int64_t kPartialFloats = 256 << 10;  // all partial sums together, if possible
constexpr int64_t kMinPartitions = 4;
// The rows of a block and the channels of a slice with kBySlices. The block's rows of one panel of
// floats take 24 KiB, half of a first-level cache, and its slice takes 200 KiB, a fifth of a
// second-level cache of 1 MiB.
constexpr int64_t kSliceRows = 384;
constexpr int64_t kSliceChannels = 128;
constexpr int64_t kMaxSliceChannels = kSliceChannels + 8;

// Returns memory for the packed rows as MultiplyTransposed wants them.
template <typename P>
P* PairedRows(P* packed, int64_t numbers, Arena* arena) {
  return std::is_same_v<P, Bfloat16> ? arena->Numbers<P>(numbers) : packed;
}

// Writes zeros after `rows` rows, an odd number of them, of a block of block_rows rows.
void ClearNextRow(const Panels& panels, const PanelRange& range, int64_t block_rows, int64_t rows,
                  BfloatAsFloat* block) {
  const int64_t start = panels[range.begin].start;
  for (int64_t p = range.begin; p < range.end; ++p) {
    const Panel panel = panels[p];
    std::fill_n(block + block_rows * (panel.start - start) + rows * panel.width, panel.width,
                BfloatAsFloat());
  }
}

// Packs a range of panels of rows [first, first + rows) of `source` as rows from `out_first` on of
// a block of block_rows, and also as MultiplyTransposed wants them.
template <typename P>
void PackBoth(const RowSource<P>& source, const PanelRange& range, int64_t first, int64_t rows,
              int64_t block_rows, int64_t out_first, P* packed, P* paired) {
  source.Pack(range, first, rows, packed, block_rows, out_first);
  if constexpr (std::is_same_v<P, Bfloat16>) {
    PairRows(source.panels(), range, packed, block_rows, out_first, rows, paired);
  } else if constexpr (std::is_same_v<P, BfloatAsFloat>) {
    if (rows % 2 != 0) {
      ClearNextRow(source.panels(), range, block_rows, out_first + rows, paired);
    }
  }
}

}  // namespace

template <typename P>
WeightGradient<P>::WeightGradient(int64_t rows, int64_t inner, int64_t outer, Cut cut,
                                  int64_t block_rows, int threads, Arena* arena)
    : rows_(rows),
      inner_(InnerPanels<P>(inner)),
      outer_(ResultPanels(outer)),
      block_rows_(block_rows) {
  const int64_t packed_rows = cut == Cut::kByBlocks ? threads * block_rows : rows;
  const int64_t x_numbers = cut == Cut::kBySlices ? threads * kSliceRows * kMaxSliceChannels
                                                  : EvenRows<P>(packed_rows) * inner_.padded();
  const int64_t dy_numbers = EvenRows<P>(packed_rows) * outer_.padded();
  packed_x_ = arena->Numbers<P>(x_numbers);
  packed_dy_ = arena->Numbers<P>(dy_numbers);
  paired_x_ = PairedRows(packed_x_, x_numbers, arena);
  paired_dy_ = PairedRows(packed_dy_, dy_numbers, arena);
  if (cut == Cut::kByBlocks) partial_ = arena->Floats(partitions() * inner * outer_.padded());
  if (cut == Cut::kBySlices) {
    partial_ = arena->Floats(threads * kMaxSliceChannels * outer_.padded());
  }
}

template <typename P>
int64_t WeightGradient<P>::partitions() const {
  const int64_t blocks = (rows_ + block_rows_ - 1) / block_rows_;
  const int64_t fit = kPartialFloats / (inner_.channels() * outer_.padded());
  return std::min(blocks, std::clamp(fit, kMinPartitions, kMaxPartitions));
}

template <typename P>
void WeightGradient<P>::RunByBlocks(const RowSource<P>& x, const RowSource<P>& dy, float* dweights,
                                    ThreadPool* pool, AlsoFn also) const {
  const int64_t blocks = (rows_ + block_rows_ - 1) / block_rows_;
  const int64_t ldc = outer_.padded();
  KernelLoop(pool, partitions(), [&](int64_t partition, int thread) {
    const int64_t x_offset = thread * block_rows_ * inner_.padded();
    const int64_t dy_offset = thread * block_rows_ * outer_.padded();
    float* sum = partial_ + partition * inner_.channels() * ldc;
    const int64_t begin = blocks * partition / partitions();
    const int64_t end = blocks * (partition + 1) / partitions();
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * block_rows_, rows = std::min(block_rows_, rows_ - first);
      PackBoth(dy, outer_.all(), first, rows, block_rows_, 0, packed_dy_ + dy_offset,
               paired_dy_ + dy_offset);
      PackBoth(x, inner_.all(), first, rows, block_rows_, 0, packed_x_ + x_offset,
               paired_x_ + x_offset);
      Prefetcher prefetcher;
      if (block + 1 < end) {
        const int64_t next = first + block_rows_;
        const int64_t next_rows = std::min(block_rows_, rows_ - next);
        dy.AddTo(&prefetcher, next, next_rows);
        x.AddTo(&prefetcher, next, next_rows);
      }
      also(packed_dy_ + dy_offset, block, thread, &prefetcher);
      const Store store = block == begin ? Store::kWrite : Store::kAdd;
      for (int64_t i = 0; i < inner_.count(); ++i) {
        const Panel in = inner_[i];
        for (int64_t o = 0; o < outer_.count(); ++o) {
          const Panel out = outer_[o];
          MultiplyTransposed(paired_x_ + x_offset + block_rows_ * in.start, in.width, in.valid,
                             paired_dy_ + dy_offset + block_rows_ * out.start, out.width, rows,
                             sum + in.start * ldc + out.start, ldc, store, &prefetcher);
        }
      }
    }
  });
  AddUp(dweights, pool);
}

// Adds the partial sums of all partitions, in order, so the result has the same bits for any number
// of threads.
template <typename P>
void WeightGradient<P>::AddUp(float* dweights, ThreadPool* pool) const {
  const int64_t inner = inner_.channels(), outer = outer_.channels(), ldc = outer_.padded();
  const int64_t rows_per_task = std::max<int64_t>(1, 4096 / ldc);
  KernelLoop(pool, (inner + rows_per_task - 1) / rows_per_task, [&](int64_t task) {
    const int64_t end = std::min(inner, (task + 1) * rows_per_task);
    for (int64_t k = task * rows_per_task; k < end; ++k) {
      AddRows(partial_ + k * ldc, partitions(), inner * ldc, outer, dweights + k * outer);
    }
  });
}

template <typename P>
void WeightGradient<P>::RunBySlices(const RowSource<P>& x, const RowSource<P>& dy, float* dweights,
                                    ThreadPool* pool) const {
  KernelLoop(pool, (rows_ + kPackRows - 1) / kPackRows, [&](int64_t i) {
    const int64_t first = i * kPackRows, rows = std::min(kPackRows, rows_ - first);
    PackBoth(dy, outer_.all(), first, rows, EvenRows<P>(rows_), first, packed_dy_, paired_dy_);
  });
  const int64_t panels = inner_.PanelsOf(kSliceChannels);
  KernelLoop(pool, (inner_.count() + panels - 1) / panels, [&](int64_t slice, int thread) {
    const int64_t begin = slice * panels;
    SliceTask(x, {begin, std::min(inner_.count(), begin + panels)}, thread, dweights);
  });
}

template <typename P>
void WeightGradient<P>::SliceTask(const RowSource<P>& x, const PanelRange& range, int thread,
                                  float* dweights) const {
  const int64_t start = inner_[range.begin].start, ldc = outer_.padded();
  const int64_t x_offset = thread * kSliceRows * kMaxSliceChannels;
  float* sum = partial_ + thread * kMaxSliceChannels * ldc;
  for (int64_t first = 0; first < rows_; first += kSliceRows) {
    const int64_t rows = std::min(kSliceRows, rows_ - first);
    PackBoth(x, range, first, rows, kSliceRows, 0, packed_x_ + x_offset, paired_x_ + x_offset);
    for (int64_t o = 0; o < outer_.count(); ++o) {
      const Panel out = outer_[o];
      for (int64_t i = range.begin; i < range.end; ++i) {
        const Panel in = inner_[i];
        MultiplyTransposed(paired_x_ + x_offset + kSliceRows * (in.start - start), in.width,
                           in.valid,
                           paired_dy_ + EvenRows<P>(rows_) * out.start + first * out.width,
                           out.width, rows, sum + (in.start - start) * ldc + out.start, ldc,
                           first == 0 ? Store::kWrite : Store::kAdd);
      }
    }
  }
  const Panel last = inner_[range.end - 1];
  for (int64_t k = start; k < last.start + last.valid; ++k) {
    std::copy_n(sum + (k - start) * ldc, outer_.channels(), dweights + k * outer_.channels());
  }
}

template <typename P>
void WeightGradient<P>::Pack(const RowSource<P>& x, const RowSource<P>& dy,
                             ThreadPool* pool) const {
  KernelLoop(pool, (rows_ + kPackRows - 1) / kPackRows, [&](int64_t i) {
    const int64_t first = i * kPackRows, rows = std::min(kPackRows, rows_ - first);
    PackBoth(x, inner_.all(), first, rows, EvenRows<P>(rows_), first, packed_x_, paired_x_);
    PackBoth(dy, outer_.all(), first, rows, EvenRows<P>(rows_), first, packed_dy_, paired_dy_);
  });
}

template <typename P>
void WeightGradient<P>::PanelTask(int64_t task, float* dweights) const {
  const int64_t outer = outer_.channels(), paired_rows = EvenRows<P>(rows_);
  const Panel in = inner_[task];
  const P* x = paired_x_ + paired_rows * in.start;
  for (int64_t o = 0; o < outer_.count(); ++o) {
    const Panel out = outer_[o];
    const P* dy = paired_dy_ + paired_rows * out.start;
    float* to = dweights + in.start * outer + out.start;
    if (out.valid == out.width) {
      MultiplyTransposed(x, in.width, in.valid, dy, out.width, rows_, to, outer, Store::kWrite);
      continue;
    }
    // The product writes whole vectors, which would run over into the next row of dweights.
    alignas(64) float tile[kMaxPanelWidth * kMaxPanelWidth];
    MultiplyTransposed(x, in.width, in.valid, dy, out.width, rows_, tile, out.width, Store::kWrite);
    for (int i = 0; i < in.valid; ++i) {
      std::copy(tile + i * out.width, tile + i * out.width + out.valid, to + i * outer);
    }
  }
}

template class WeightGradient<float>;
template class WeightGradient<Bfloat16>;
template class WeightGradient<BfloatAsFloat>;

}  // namespace pushpull
