// Tested by tests/kernels/cpu/gradient_test.cc.
// Tested by tests/kernels/cpu/operators_test.cc.
#include "kernels/cpu/elementwise.h"

#include <algorithm>

#include "kernels/cpu/tile_finisher.h"

namespace pushpull {

namespace {

constexpr int64_t kTaskFloats = 32 << 10;

// Writes the value that `load` computes for each element. A task handles about kTaskFloats floats.
// Rows are taken eight at a time, so that a vector of channels loads its coefficients into
// registers once for eight rows, which still lie close together in memory. The pass reads and
// writes every element once, so it is bound by memory.
template <typename Load>
void StoreRows(const Shape& shape, const Load& load, float* out, ThreadPool* pool) {
  const int64_t per_task = std::max<int64_t>(8, kTaskFloats / shape.c);
  pool->ParallelFor((shape.rows() + per_task - 1) / per_task, [&](int64_t task) {
    const int64_t end = std::min(shape.rows(), (task + 1) * per_task);
    constexpr int64_t kGroup = 8;
    for (int64_t r0 = task * per_task; r0 < end; r0 += kGroup) {
      const int64_t r1 = std::min(r0 + kGroup, end);
      ForEachVector(0, shape.c, [&](int64_t c, auto lanes) {
        const auto channel = load.At(c);
        for (int64_t r = r0; r < r1; ++r) {
          lanes.Store(out + r * shape.c + c, channel(lanes, r * shape.c + c));
        }
      });
    }
  });
}

struct PoolPlan {
  PoolPlan(const Shape& shape, Arena* arena)
      : coefficients(shape.c, arena),
        sums(shape.n, shape.c, arena),
        rows(arena->Floats(shape.n * PaddedChannels(shape.c))) {}
  LazyCoefficients coefficients;
  BlockSums sums;
  float* rows;  // per sample, the gradient that each of its pixels receives
};

int64_t SamplesPerTask(const Shape& shape) {
  return std::max<int64_t>(1, kTaskFloats / (shape.h * shape.w * shape.c));
}

// Calls f(sample) for all samples, on the pool's threads. A task handles several samples if they
// are small.
template <typename F>
void ForEachSample(const Shape& shape, ThreadPool* pool, F f) {
  const int64_t per_task = SamplesPerTask(shape);
  pool->ParallelFor((shape.n + per_task - 1) / per_task, [&](int64_t task) {
    const int64_t end = std::min(shape.n, (task + 1) * per_task);
    for (int64_t n = task * per_task; n < end; ++n) f(n);
  });
}

}  // namespace

void ApplyValue(const Lazy<float>& x, const LazyCoefficients& coefficients, float* out,
                ThreadPool* pool) {
  WithValueLoad(x, coefficients, [&](const auto& load) { StoreRows(x.shape, load, out, pool); });
}

void ApplyGradient(const Shape& shape, const OutputGradient<float>& dy,
                   const GradientCoefficients& coefficients, float* out, ThreadPool* pool) {
  WithGradientLoad(dy, coefficients, [&](const auto& load) { StoreRows(shape, load, out, pool); });
}

int64_t PoolWorkspaceBytes(const Shape& shape) {
  Arena arena;
  PoolPlan(shape, &arena);
  return arena.used_bytes();
}

void PoolForward(const Lazy<float>& x, const LazyCoefficients& coefficients, float* y,
                 ThreadPool* pool) {
  const int64_t pixels = x.shape.h * x.shape.w, channels = x.shape.c;
  const Vector factor = _mm256_set1_ps(1.0f / static_cast<float>(pixels));
  WithValueLoad(x, coefficients, [&](const auto& load) {
    ForEachSample(x.shape, pool, [&](int64_t n) {
      ForEachVector(0, channels, [&](int64_t c, auto lanes) {
        const auto channel = load.At(c);
        Vector sum = _mm256_setzero_ps();
        for (int64_t r = n * pixels; r < (n + 1) * pixels; ++r) {
          sum = _mm256_add_ps(sum, channel(lanes, r * channels + c));
        }
        lanes.Store(y + n * channels + c, _mm256_mul_ps(sum, factor));
      });
    });
  });
}

void PoolBackward(const Lazy<float>& x, const float* dy, const InputGradient<float>& dx,
                  const Workspace& workspace, ThreadPool* pool) {
  if (dx.dz == nullptr) return;
  Arena arena(workspace);
  const PoolPlan plan(x.shape, &arena);
  if (x.batch_norm != nullptr) plan.coefficients.Compute(*x.batch_norm, x.shape.c);
  const int64_t pixels = x.shape.h * x.shape.w, channels = x.shape.c;
  const Vector factor = _mm256_set1_ps(1.0f / static_cast<float>(pixels));
  const BackwardFinisher finisher(x, plan.coefficients, dx, plan.sums);
  ForEachSample(x.shape, pool, [&](int64_t n) {
    float* row = plan.rows + n * PaddedChannels(channels);
    ForEachVector(0, channels, [&](int64_t c, auto lanes) {
      _mm256_storeu_ps(row + c, _mm256_mul_ps(lanes.Load(dy + n * channels + c), factor));
    });
    finisher.FinishRows({0, channels, 0}, n * pixels, pixels, row, n, Store::kWrite);
  });
  if (x.batch_norm != nullptr) CombineGradients(plan.sums, *x.batch_norm, channels, dx, pool);
}

}  // namespace pushpull
