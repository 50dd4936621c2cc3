// Sums per channel to which many blocks contribute. Each block writes its part to the workspace.
// The parts are combined in a fixed order, in double, so results are deterministic.
#ifndef PUSHPULL_KERNELS_CUDA_CHANNEL_SUMS_H_
#define PUSHPULL_KERNELS_CUDA_CHANNEL_SUMS_H_

#include "kernels/cuda/queue.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// Statistics. A part holds three numbers per channel: the count of values, their mean, and m2, the
// sum of squared distances from that mean. The layout is [parts][3][channels]. A count may be 0,
// but it is the same for all channels of a part. Parts are combined by the formula of Chan, Golub
// and LeVeque (1979), so that a large mean costs no precision. The kernel that writes the parts
// combines them too (statistics_sums.cuh).
inline int64_t StatisticsPartBytes(int64_t parts, int64_t channels) {
  return parts * 3 * channels * static_cast<int64_t>(sizeof(float));
}

// Gradients of batch norm. A part holds two numbers per channel: the sum of dz and the sum of
// dz * (raw - mean). The layout is [parts][2][channels]. dbeta is the first sum over all
// parts, and dgamma is the second sum divided by sqrt(variance + epsilon).
inline int64_t GradientPartBytes(int64_t parts, int64_t channels) {
  return parts * 2 * channels * static_cast<int64_t>(sizeof(float));
}
struct NormGradientSums {
  const float* parts = nullptr;
  int64_t num_parts = 0;  // 0: there is nothing to combine
  int64_t channels = 0;
  const BatchNorm<float>* norm = nullptr;
  float* dbeta = nullptr;
  float* dgamma = nullptr;
};

// Plain sums: out[i] = sum over p of parts[p][i], where `parts` is [num_parts][size].
struct PlainSums {
  const float* parts = nullptr;
  int64_t num_parts = 0;  // 0: there is nothing to combine
  int64_t size = 0;
  float* out = nullptr;
};

// What remains to be combined after the kernels of an operator's backward pass.
struct GradientSums {
  NormGradientSums norm;
  PlainSums weights, biases;
};
// Queues one kernel for all of them, or none if there is nothing to combine.
void CombineGradients(Queue* queue, const GradientSums& sums);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CHANNEL_SUMS_H_
