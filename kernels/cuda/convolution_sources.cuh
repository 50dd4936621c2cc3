// What the elements of a convolution's left operand are formed from, and the coefficients that this
// takes: a vector per coefficient, with a number per channel and zeros up to PaddedChannels.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_SOURCES_CUH_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_SOURCES_CUH_

#include "kernels/cuda/clamp.cuh"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/tile_math.cuh"
#include "kernels/cuda/views.cuh"

namespace pushpull::PUSHPULL_CUDA {

// The columns of a tap in the left operand.
template <typename Int>
PUSHPULL_HOST_DEVICE inline Int PaddedChannels(Int channels) {
  return (channels + 7) / 8 * 8;
}

// Elements are values of x, formed through batch norm, activation and skip.
template <typename T>
struct ValueSource {
  static constexpr int kCoefficients = 2;
  LazyView<T> x;
  int channels;
  Divisor padded = Divisor(PaddedChannels(channels));

  // Whether the elements are the numbers of first() as they are.
  PUSHPULL_HOST_DEVICE bool plain() const {
    return x.norm.gamma == nullptr && x.activation == FusedActivation::kNone && x.skip == nullptr;
  }
  __device__ __forceinline__ void FillCoefficients(float* out) const {
    const int padded = PaddedChannels(channels);
    for (int c = threadIdx.x; c < padded; c += kTileThreads) {
      const ScaleShift z = c < channels ? NormCoefficients(x.norm, c) : ScaleShift{0.0f, 0.0f};
      out[c] = z.scale;
      out[padded + c] = z.shift;
    }
  }
  // The coefficients of eight channels from `channel` on; zeros beyond the last one.
  __device__ __forceinline__ void Coefficients8(int channel, float k[kCoefficients][8]) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const ScaleShift z =
          channel + e < channels ? NormCoefficients(x.norm, channel + e) : ScaleShift{0.0f, 0.0f};
      k[0][e] = z.scale;
      k[1][e] = z.shift;
    }
  }
  __device__ __forceinline__ const T* first() const { return x.raw; }
  PUSHPULL_HOST_DEVICE const T* second() const { return x.skip; }
  // Forms eight neighbours; `k` are their coefficients. `skip` is only read if second() is not
  // null.
  __device__ __forceinline__ void Form8(const Raw8<T>& raw, const Raw8<T>& skip,
                                        const float k[kCoefficients][8], float values[8]) const {
    Unpack8(raw, values);
    const Bounds bounds = x.bounds;
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] = Clamp(values[e] * k[0][e] + k[1][e], bounds);
    if (second() == nullptr) return;
    float others[8];
    Unpack8(skip, others);
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] += others[e];
  }
};

// Elements are dy: dz taken back through batch norm.
template <typename T>
struct GradientSource {
  static constexpr int kCoefficients = 3;
  OutputGradientView<T> dy;
  int channels;
  Divisor padded = Divisor(PaddedChannels(channels));

  PUSHPULL_HOST_DEVICE bool plain() const { return dy.norm.gamma == nullptr; }
  __device__ __forceinline__ void FillCoefficients(float* out) const {
    const int padded = PaddedChannels(channels);
    for (int c = threadIdx.x; c < padded; c += kTileThreads) {
      const RawGradientCoefficients k =
          c < channels ? GradientCoefficients(dy, c) : RawGradientCoefficients{0.0f, 0.0f, 0.0f};
      out[c] = k.dz_factor;
      out[padded + c] = k.raw_factor;
      out[2 * padded + c] = k.offset;
    }
  }
  __device__ __forceinline__ void Coefficients8(int channel, float k[kCoefficients][8]) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const RawGradientCoefficients c = channel + e < channels
                                            ? GradientCoefficients(dy, channel + e)
                                            : RawGradientCoefficients{0.0f, 0.0f, 0.0f};
      k[0][e] = c.dz_factor;
      k[1][e] = c.raw_factor;
      k[2][e] = c.offset;
    }
  }
  __device__ __forceinline__ const T* first() const { return dy.dz; }
  PUSHPULL_HOST_DEVICE const T* second() const {
    return dy.norm.gamma != nullptr && dy.norm.batch_statistics ? dy.raw : nullptr;
  }
  __device__ __forceinline__ void Form8(const Raw8<T>& dz, const Raw8<T>& raw,
                                        const float k[kCoefficients][8], float values[8]) const {
    Unpack8(dz, values);
    if (second() == nullptr) {
#pragma unroll
      for (int e = 0; e < 8; ++e) values[e] *= k[0][e];
      return;
    }
    float others[8];
    Unpack8(raw, others);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      values[e] = fmaf(values[e], k[0][e], fmaf(others[e], k[1][e], k[2][e]));
    }
  }
};

// One block writes coefficients[Source::kCoefficients][channels] to device memory.
template <typename Source>
__global__ void CoefficientsKernel(Source source, float* out) {
  source.FillCoefficients(out);
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_SOURCES_CUH_
