// Sums per channel that many blocks contribute to: each block writes its part, a second kernel adds
// the parts in their order, in double. Deterministic, and no atomics.
#ifndef PUSHPULL_KERNELS_CUDA_CHANNEL_SUMS_H_
#define PUSHPULL_KERNELS_CUDA_CHANNEL_SUMS_H_

#include "kernels/cuda/queue.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// The statistics of a part of a tensor, one such triple per (part, channel): count, mean, and sum
// of squared distances from that mean. Parts are combined by the formula of Chan, Golub and LeVeque
// (1979), so that a large mean costs no precision. Layout: [parts][3][channels], count, mean, m2;
// count may be 0.
inline int64_t StatisticsPartBytes(int64_t parts, int64_t channels) {
  return parts * 3 * channels * static_cast<int64_t>(sizeof(float));
}
void CombineStatistics(Queue* queue, const float* parts, int64_t num_parts, int64_t channels,
                       float* mean, float* variance);

// Layout: [parts][2][channels]: sums of dz, and of dz * (raw - mean). Writes dbeta and
// dgamma = sum / sqrt(variance + epsilon).
inline int64_t GradientPartBytes(int64_t parts, int64_t channels) {
  return parts * 2 * channels * static_cast<int64_t>(sizeof(float));
}
void CombineNormGradients(Queue* queue, const float* parts, int64_t num_parts, int64_t channels,
                          const BatchNorm<float>& norm, float* dbeta, float* dgamma);

// out[i] = sum over parts of parts[p][i].
void CombineParts(Queue* queue, const float* parts, int64_t num_parts, int64_t size, float* out);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CHANNEL_SUMS_H_
