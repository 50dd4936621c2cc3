// Sums per channel that many blocks contribute to. Each block writes its part to the workspace; the
// functions here queue a second kernel that combines the parts in a fixed order, in double. There
// are no atomics, so results are deterministic.
#ifndef PUSHPULL_KERNELS_CUDA_CHANNEL_SUMS_H_
#define PUSHPULL_KERNELS_CUDA_CHANNEL_SUMS_H_

#include "kernels/cuda/queue.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// Statistics. A part holds three numbers per channel: the count of values, their mean, and m2, the
// sum of squared distances from that mean. The layout is [parts][3][channels]; a count may be 0.
// Parts are combined by the formula of Chan, Golub and LeVeque (1979), so that a large mean costs
// no precision.
inline int64_t StatisticsPartBytes(int64_t parts, int64_t channels) {
  return parts * 3 * channels * static_cast<int64_t>(sizeof(float));
}
void CombineStatistics(Queue* queue, const float* parts, int64_t num_parts, int64_t channels,
                       float* mean, float* variance);

// Gradients of batch norm. A part holds two numbers per channel: the sum of dz and the sum of
// dz * (raw - mean). The layout is [parts][2][channels]. Writes dbeta, the first sum over all
// parts, and dgamma, the second sum divided by sqrt(variance + epsilon).
inline int64_t GradientPartBytes(int64_t parts, int64_t channels) {
  return parts * 2 * channels * static_cast<int64_t>(sizeof(float));
}
void CombineNormGradients(Queue* queue, const float* parts, int64_t num_parts, int64_t channels,
                          const BatchNorm<float>& norm, float* dbeta, float* dgamma);

// Plain sums: out[i] = sum over p of parts[p][i], where `parts` is [num_parts][size].
void CombineParts(Queue* queue, const float* parts, int64_t num_parts, int64_t size, float* out);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CHANNEL_SUMS_H_
