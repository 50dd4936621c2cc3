// The operands of kernels/operands.h in the form that kernels take: passed by value, without
// pointers to host structs. Also the functions that compute the coefficients of batch norm.
#ifndef PUSHPULL_KERNELS_CUDA_VIEWS_CUH_
#define PUSHPULL_KERNELS_CUDA_VIEWS_CUH_

#include "kernels/cuda/clamp.cuh"
#include "kernels/cuda/platform.h"
#include "kernels/operands.h"
#include "kernels/scalar_math.h"

namespace pushpull::PUSHPULL_CUDA {

// gamma is null if there is no batch norm.
struct NormView {
  const float* gamma = nullptr;
  const float* beta = nullptr;
  const float* mean = nullptr;
  const float* variance = nullptr;
  float epsilon = 0.0f;
  bool batch_statistics = false;
};

template <typename T>
struct LazyView {
  const T* raw = nullptr;
  const T* skip = nullptr;
  const T* applied = nullptr;
  NormView norm;
  FusedActivation activation = FusedActivation::kNone;
  Bounds bounds = BoundsOf(activation);
};

template <typename T>
struct OutputGradientView {
  const T* dz = nullptr;
  const T* raw = nullptr;
  NormView norm;
  const float* dbeta = nullptr;
  const float* dgamma = nullptr;
  // 1 / the pixels of the output, which the batch norm's statistics run over.
  float inverse_rows = 1.0f;
};

// dz is null if no input gradient is wanted.
template <typename T>
struct InputGradientView {
  T* dz = nullptr;
  const T* add = nullptr;
};

inline NormView ViewOf(const BatchNorm<float>* norm) {
  if (norm == nullptr) return {};
  return {norm->gamma,
          norm->beta,
          norm->mean,
          norm->variance,
          static_cast<float>(norm->epsilon),
          norm->statistics == Statistics::kBatch};
}

template <typename T>
LazyView<T> ViewOf(const Lazy<T>& x) {
  return {x.raw, x.skip, x.applied, ViewOf(x.batch_norm), x.activation};
}

// A view for reading the value alone. If Apply() has written the value, it is a plain tensor
// without batch norm, activation and skip.
template <typename T>
LazyView<T> ValueView(const Lazy<T>& x) {
  if (x.applied == nullptr) return ViewOf(x);
  LazyView<T> plain;
  plain.raw = x.applied;
  return plain;
}

template <typename T>
OutputGradientView<T> ViewOf(const OutputGradient<T>& dy, int64_t rows) {
  return {dy.dz,    dy.raw,    ViewOf(dy.batch_norm),
          dy.dbeta, dy.dgamma, 1.0f / static_cast<float>(rows)};
}

template <typename T>
InputGradientView<T> ViewOf(const InputGradient<T>& dx) {
  return {dx.dz, dx.add};
}

__device__ __forceinline__ float InverseDeviation(const NormView& norm, int channel) {
  return rsqrtf(norm.variance[channel] + norm.epsilon);
}

// Batch norm forward: z = scale * raw + shift. Without batch norm, scale is 1 and shift 0.
struct ScaleShift {
  float scale, shift;
};

__device__ __forceinline__ ScaleShift NormCoefficients(const NormView& norm, int channel) {
  if (norm.gamma == nullptr) return {1.0f, 0.0f};
  const float scale = norm.gamma[channel] * InverseDeviation(norm, channel);
  return {scale, norm.beta[channel] - norm.mean[channel] * scale};
}

// Batch norm backward. The gradient of the convolution's raw output is
// dy = dz_factor * dz + raw_factor * raw + offset.
struct RawGradientCoefficients {
  float dz_factor, raw_factor, offset;
};

template <typename T>
__device__ __forceinline__ RawGradientCoefficients
GradientCoefficients(const OutputGradientView<T>& dy, int channel) {
  if (dy.norm.gamma == nullptr) return {1.0f, 0.0f, 0.0f};
  const float inverse = InverseDeviation(dy.norm, channel);
  const float factor = dy.norm.gamma[channel] * inverse;
  if (!dy.norm.batch_statistics) return {factor, 0.0f, 0.0f};
  const float slope = factor * inverse * (dy.dgamma[channel] * dy.inverse_rows);
  return {factor, -slope,
          slope * dy.norm.mean[channel] - factor * (dy.dbeta[channel] * dy.inverse_rows)};
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_VIEWS_CUH_
