// Operators without weights: computing a lazy value or gradient, sums of rows, and average pooling.
// Each call blocks until its outputs are written.
#ifndef PUSHPULL_KERNELS_CPU_ELEMENTWISE_H_
#define PUSHPULL_KERNELS_CPU_ELEMENTWISE_H_

#include <cstdint>

#include "common/base/thread_pool.h"
#include "kernels/cpu/channel_coefficients.h"
#include "kernels/operators.h"

namespace pushpull {

// to[size] = ToBfloat16 of each of from[size], also of denormal numbers.
void RoundFloats(int64_t size, const float* from, Bfloat16* to, ThreadPool* pool);

// T, the type of the tensors, is float or Bfloat16.

// out[x.shape] = the value of x, or a copy of x.applied if there is one. If x has a batch norm,
// `coefficients` must have been computed from it; the same holds below.
template <typename T>
void ApplyValue(const Lazy<T>& x, const LazyCoefficients& coefficients, T* out, ThreadPool* pool);
// out[shape] = the gradient of the raw output: dy taken back through batch norm.
template <typename T>
void ApplyGradient(const Shape& shape, const OutputGradient<T>& dy,
                   const GradientCoefficients& coefficients, T* out, ThreadPool* pool);

// out[shape.c] = the sum over all rows of what ApplyGradient computes. Blocks of rows are summed in
// float and combined in double, in an order that does not depend on the number of threads. `sums`
// has GradientSumFloats(shape) floats for the blocks.
template <typename T>
void SumGradient(const Shape& shape, const OutputGradient<T>& dy,
                 const GradientCoefficients& coefficients, float* sums, float* out,
                 ThreadPool* pool);
int64_t GradientSumFloats(const Shape& shape);
// out[channels] = the sum of `rows` rows that are `stride` floats apart, added in order. It runs on
// the calling thread.
void AddRows(const float* from, int64_t rows, int64_t stride, int64_t channels, float* out);

int64_t PoolWorkspaceBytes(const Shape& shape, int threads);
// As Operators::GlobalAveragePool and GlobalAveragePoolBackward.
template <typename T>
void PoolForward(const Lazy<T>& x, const LazyCoefficients& coefficients, T* y, ThreadPool* pool);
template <typename T>
void PoolBackward(const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                  const Workspace& workspace, ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_ELEMENTWISE_H_
