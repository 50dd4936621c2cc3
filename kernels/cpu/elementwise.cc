// Tested by tests/kernels/cpu/gradient_test.cc.
// Tested by tests/kernels/cpu/operators_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/elementwise.h"

#include <algorithm>

#include "common/base/cpu_isa.h"
#include "kernels/cpu/kernel_loop.h"
#include "kernels/cpu/tile_finisher.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "kernels/cpu/vector_loads.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kTaskFloats = 32 << 10;

// Writes the value that `load` computes for each element. A task handles about kTaskFloats floats.
// Rows are taken eight at a time, so that a vector of channels loads its coefficients into
// registers once for eight rows, which still lie close together in memory. The pass reads and
// writes every element once, so it is bound by memory.
template <typename Load, typename T>
void StoreRows(const Shape& shape, const Load& load, T* out, ThreadPool* pool) {
  const int64_t per_task = std::max<int64_t>(8, kTaskFloats / shape.c);
  KernelLoop(pool, (shape.rows() + per_task - 1) / per_task, [&](int64_t task) HWY_ATTR {
    const int64_t end = std::min(shape.rows(), (task + 1) * per_task);
    constexpr int64_t kGroup = 8;
    for (int64_t r0 = task * per_task; r0 < end; r0 += kGroup) {
      const int64_t r1 = std::min(r0 + kGroup, end);
      ForEachVector(0, shape.c, [&](int64_t c, auto lanes) HWY_ATTR {
        const auto channel = load.At(lanes, c);
        for (int64_t r = r0; r < r1; ++r) {
          lanes.Store(out + r * shape.c + c, channel(lanes, r * shape.c + c));
        }
      });
    }
  });
}

// Calls f(i, thread) for `count` pieces of `floats` floats each, on the pool's threads. A task
// handles several pieces if they are small.
template <typename F>
void ForEachPiece(int64_t count, int64_t floats, ThreadPool* pool, F f) {
  const int64_t per_task = std::max<int64_t>(1, kTaskFloats / floats);
  KernelLoop(pool, (count + per_task - 1) / per_task, [&](int64_t task, int thread) {
    const int64_t end = std::min(count, (task + 1) * per_task);
    for (int64_t i = task * per_task; i < end; ++i) f(i, thread);
  });
}

void RoundFloats(int64_t size, const float* from, Bfloat16* to, ThreadPool* pool) {
  KernelLoop(pool, (size + kTaskFloats - 1) / kTaskFloats, [&](int64_t task) HWY_ATTR {
    const int64_t end = std::min(size, (task + 1) * kTaskFloats);
    int64_t i = task * kTaskFloats;
    for (; i + kVectorLanes <= end; i += kVectorLanes) {
      FullLanes().StoreExact(to + i, RoundedInIntegers(LoadWhole(from + i)));
    }
    for (; i < end; ++i) to[i] = ToBfloat16(from[i]);
  });
}

template <typename T>
void ApplyValue(const Lazy<T>& x, const LazyCoefficients& coefficients, T* out, ThreadPool* pool) {
  WithValueLoad(x, coefficients,
                [&](const auto& load) HWY_ATTR { StoreRows(x.shape, load, out, pool); });
}

template <typename T>
void ApplyGradient(const Shape& shape, const OutputGradient<T>& dy,
                   const GradientCoefficients& coefficients, T* out, ThreadPool* pool) {
  WithGradientLoad(dy, coefficients,
                   [&](const auto& load) HWY_ATTR { StoreRows(shape, load, out, pool); });
}

template <typename T>
void PoolForward(const Lazy<T>& x, const LazyCoefficients& coefficients, T* y, ThreadPool* pool) {
  const int64_t pixels = x.shape.h * x.shape.w, channels = x.shape.c;
  const Vector factor = hn::Set(Tag(), 1.0f / static_cast<float>(pixels));
  WithValueLoad(x, coefficients, [&](const auto& load) HWY_ATTR {
    ForEachPiece(x.shape.n, pixels * channels, pool, [&](int64_t n, int) HWY_ATTR {
      ForEachVector(0, channels, [&](int64_t c, auto lanes) HWY_ATTR {
        const auto channel = load.At(lanes, c);
        Vector sum = Zero();
        for (int64_t r = n * pixels; r < (n + 1) * pixels; ++r) {
          sum = hn::Add(sum, channel(lanes, r * channels + c));
        }
        lanes.Store(y + n * channels + c, hn::Mul(sum, factor));
      });
    });
  });
}

// Gives each pixel of a sample its part of dy. A block is some samples, one unless they have one
// pixel each. The rows that its pixels receive are computed first, in memory of the thread.
template <typename T>
void SpreadGradient(const Shape& shape, const T* dy, const BackwardFinisher<T>& finisher,
                    int64_t block_samples, float* rows, ThreadPool* pool) {
  const int64_t pixels = shape.h * shape.w, channels = shape.c, padded = PaddedChannels(channels);
  const Vector factor = hn::Set(Tag(), 1.0f / static_cast<float>(pixels));
  const int64_t blocks = (shape.n + block_samples - 1) / block_samples;
  ForEachPiece(blocks, block_samples * pixels * channels, pool,
               [&](int64_t block, int thread) HWY_ATTR {
                 float* tile = rows + thread * block_samples * padded;
                 const int64_t first = block * block_samples;
                 const int64_t samples = std::min(block_samples, shape.n - first);
                 ForEachVector(0, channels, [&](int64_t c, auto lanes) HWY_ATTR {
                   for (int64_t n = 0; n < samples; ++n) {
                     const Vector sum = lanes.Load(dy + (first + n) * channels + c);
                     lanes.StorePadded(tile + n * padded + c, hn::Mul(sum, factor));
                   }
                 });
                 const int64_t stride = pixels == 1 ? padded : 0;
                 finisher.FinishRows({0, channels, stride}, first * pixels, samples * pixels, tile,
                                     block, Store::kWrite);
               });
}

// Writes the sum of each block of block_rows rows, [blocks, PaddedChannels]. Rows are taken eight
// at a time, as in StoreRows, and sums of eight rows are added to the block's sum, so that no chain
// of additions in float is longer than 16. The pass reads every element once and is bound by
// memory.
template <typename T>
void SumBlocks(const Shape& shape, const OutputGradient<T>& dy,
               const GradientCoefficients& coefficients, int64_t block_rows, float* sums,
               ThreadPool* pool) {
  constexpr int64_t kGroup = 8;
  const int64_t rows = shape.rows(), padded = PaddedChannels(shape.c);
  WithGradientLoad(dy, coefficients, [&](const auto& load) HWY_ATTR {
    const int64_t blocks = (rows + block_rows - 1) / block_rows;
    ForEachPiece(blocks, block_rows * shape.c, pool, [&](int64_t block, int) HWY_ATTR {
      const int64_t begin = block * block_rows, end = std::min(rows, begin + block_rows);
      float* to = sums + block * padded;
      std::fill_n(to, padded, 0.0f);
      for (int64_t r0 = begin; r0 < end; r0 += kGroup) {
        const int64_t r1 = std::min(r0 + kGroup, end);
        ForEachVector(0, shape.c, [&](int64_t c, auto lanes) HWY_ATTR {
          const auto channel = load.At(lanes, c);
          Vector sum = channel(lanes, r0 * shape.c + c);
          for (int64_t r = r0 + 1; r < r1; ++r) {
            sum = hn::Add(sum, channel(lanes, r * shape.c + c));
          }
          lanes.StorePadded(to + c, hn::Add(lanes.LoadPadded(to + c), sum));
        });
      }
    });
  });
}

// Bound by memory: one addition per float read.
void AddRows(const float* from, int64_t rows, int64_t stride, int64_t channels, float* out) {
  ForEachVector(0, channels, [&](int64_t c, auto lanes) HWY_ATTR {
    Vector sum = lanes.Load(from + c);
    for (int64_t r = 1; r < rows; ++r) sum = hn::Add(sum, lanes.Load(from + r * stride + c));
    lanes.Store(out + c, sum);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

namespace {

// The samples of a block, if they have one pixel each.
constexpr int64_t kPixelSamples = 64;

constexpr int64_t kSumRows = 64;  // of a block of SumGradient
int64_t SumBlockCount(const Shape& shape) { return (shape.rows() + kSumRows - 1) / kSumRows; }

struct PoolPlan {
  PoolPlan(const Shape& shape, int threads, Arena* arena)
      : block_samples(shape.h * shape.w == 1 ? kPixelSamples : 1),
        coefficients(shape.c, arena),
        sums((shape.n + block_samples - 1) / block_samples, shape.c, arena),
        rows(arena->Floats(threads * block_samples * PaddedChannels(shape.c))) {}
  int64_t block_samples;
  LazyCoefficients coefficients;
  BlockSums sums;
  float* rows;  // for each thread, the gradients that the pixels of a block's samples receive
};

}  // namespace

template <typename T>
void ApplyValue(const Lazy<T>& x, const LazyCoefficients& coefficients, T* out, ThreadPool* pool) {
  PUSHPULL_FOR_CHOSEN_ISA(ApplyValue<T>)(x, coefficients, out, pool);
}

template <typename T>
void ApplyGradient(const Shape& shape, const OutputGradient<T>& dy,
                   const GradientCoefficients& coefficients, T* out, ThreadPool* pool) {
  PUSHPULL_FOR_CHOSEN_ISA(ApplyGradient<T>)(shape, dy, coefficients, out, pool);
}

template <typename T>
void SumGradient(const Shape& shape, const OutputGradient<T>& dy,
                 const GradientCoefficients& coefficients, float* sums, float* out,
                 ThreadPool* pool) {
  PUSHPULL_FOR_CHOSEN_ISA(SumBlocks<T>)(shape, dy, coefficients, kSumRows, sums, pool);
  CombineSums(sums, SumBlockCount(shape), shape.c, out, pool);
}

int64_t GradientSumFloats(const Shape& shape) {
  return SumBlockCount(shape) * PaddedChannels(shape.c);
}

void AddRows(const float* from, int64_t rows, int64_t stride, int64_t channels, float* out) {
  PUSHPULL_FOR_CHOSEN_ISA(AddRows)(from, rows, stride, channels, out);
}

int64_t PoolWorkspaceBytes(const Shape& shape, int threads) {
  Arena arena;
  PoolPlan(shape, threads, &arena);
  return arena.used_bytes();
}

void RoundFloats(int64_t size, const float* from, Bfloat16* to, ThreadPool* pool) {
  PUSHPULL_FOR_CHOSEN_ISA(RoundFloats)(size, from, to, pool);
}

template <typename T>
void PoolForward(const Lazy<T>& x, const LazyCoefficients& coefficients, T* y, ThreadPool* pool) {
  PUSHPULL_FOR_CHOSEN_ISA(PoolForward<T>)(x, coefficients, y, pool);
}

template <typename T>
void PoolBackward(const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                  const Workspace& workspace, ThreadPool* pool) {
  if (dx.dz == nullptr) return;
  Arena arena(workspace);
  const PoolPlan plan(x.shape, pool->num_threads(), &arena);
  if (x.batch_norm != nullptr) plan.coefficients.Compute(*x.batch_norm, x.shape.c);
  const BackwardFinisher<T> finisher(x, plan.coefficients, dx, plan.sums);
  PUSHPULL_FOR_CHOSEN_ISA(SpreadGradient<T>)
  (x.shape, dy, finisher, plan.block_samples, plan.rows, pool);
  if (x.batch_norm != nullptr) {
    CombineGradients(plan.sums, *x.batch_norm, x.shape.c, dx.dbeta, dx.dgamma, pool);
  }
}

#define PUSHPULL_ELEMENTWISE(T)                                                           \
  template void ApplyValue<T>(const Lazy<T>&, const LazyCoefficients&, T*, ThreadPool*);  \
  template void ApplyGradient<T>(const Shape&, const OutputGradient<T>&,                  \
                                 const GradientCoefficients&, T*, ThreadPool*);           \
  template void SumGradient<T>(const Shape&, const OutputGradient<T>&,                    \
                               const GradientCoefficients&, float*, float*, ThreadPool*); \
  template void PoolForward<T>(const Lazy<T>&, const LazyCoefficients&, T*, ThreadPool*); \
  template void PoolBackward<T>(const Lazy<T>&, const T*, const InputGradient<T>&,        \
                                const Workspace&, ThreadPool*)
PUSHPULL_ELEMENTWISE(float);
PUSHPULL_ELEMENTWISE(Bfloat16);
#undef PUSHPULL_ELEMENTWISE

}  // namespace pushpull
#endif  // HWY_ONCE
