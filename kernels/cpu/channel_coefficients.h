// Per-channel vectors that reduce batch norm, forward and backward, to one or two multiply-adds per
// element, and partial sums over blocks of rows that are combined into the statistics and gradients
// of batch norm. All structs are views of an Arena's memory; thread-compatible.
#ifndef PUSHPULL_KERNELS_CPU_CHANNEL_COEFFICIENTS_H_
#define PUSHPULL_KERNELS_CPU_CHANNEL_COEFFICIENTS_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

#include "common/base/thread_pool.h"
#include "kernels/cpu/arena.h"
#include "kernels/operators.h"

namespace pushpull {

// The channels rounded up to a multiple of kPanelAlignment. The vectors below have this length;
// entries past the last channel are 0.
int64_t PaddedChannels(int64_t channels);

// The coefficients of batch norm forward: z = raw * scale + shift. `mean` is that of raw, which the
// backward pass needs.
struct LazyCoefficients {
  LazyCoefficients(int64_t channels, Arena* arena);
  void Compute(const BatchNorm<float>& norm, int64_t channels) const;
  float* scale;
  float* shift;
  float* mean;
};

// The coefficients of batch norm backward: dy = dz * a + raw * b + c. For frozen statistics
// b = c = 0. With n rows and s = gamma / sqrt(variance + epsilon):
//   a = s
//   b = -s * dgamma / (n * sqrt(variance + epsilon))
//   c = -s * dbeta / n - b * mean
struct GradientCoefficients {
  GradientCoefficients(int64_t channels, Arena* arena);
  // `shape` is that of dy, which must have a batch norm.
  template <typename T>
  void Compute(const Shape& shape, const OutputGradient<T>& dy) const {
    Compute(shape, *dy.batch_norm, dy.dbeta, dy.dgamma);
  }
  void Compute(const Shape& shape, const BatchNorm<float>& norm, const float* dbeta,
               const float* dgamma) const;
  float* a;
  float* b;
  float* c;
};

// Two sums for each block of rows and each channel, both [blocks, PaddedChannels]. For statistics
// they are the mean of the block and the sum of squared deviations from it. For gradients they are
// the sum of dz and the sum of dz * (raw - mean).
struct BlockSums {
  BlockSums(int64_t blocks, int64_t channels, Arena* arena);
  float* First(int64_t block) const { return first + block * stride; }
  float* Second(int64_t block) const { return second + block * stride; }
  int64_t blocks;
  int64_t stride;
  float* first;
  float* second;
};

// Combine the sums of all blocks into the statistics or gradients of each channel. They add in
// double and in the order of the blocks, so the result does not depend on the number of threads.
// rows_of(block) returns the rows of a block. Statistics are combined by the formula of Chan, Golub
// and LeVeque (1979). They block until done.
void CombineStatistics(const BlockSums& sums, absl::FunctionRef<int64_t(int64_t)> rows_of,
                       int64_t channels, float* mean, float* variance, ThreadPool* pool);
void CombineGradients(const BlockSums& sums, const BatchNorm<float>& norm, int64_t channels,
                      float* dbeta, float* dgamma, ThreadPool* pool);
// The same for a single sum of each block, [blocks, PaddedChannels(channels)].
void CombineSums(const float* sums, int64_t blocks, int64_t channels, float* out, ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_CHANNEL_COEFFICIENTS_H_
