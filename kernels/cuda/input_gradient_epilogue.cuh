// The last step of an input gradient: turns the gradient of the value of x into dz, the gradient of
// its normalised value, and sums what the batch norm of x needs.
#ifndef PUSHPULL_KERNELS_CUDA_INPUT_GRADIENT_EPILOGUE_CUH_
#define PUSHPULL_KERNELS_CUDA_INPUT_GRADIENT_EPILOGUE_CUH_

#include "kernels/cuda/clamp.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/views.cuh"

namespace pushpull::PUSHPULL_CUDA {

// An epilogue of FinishStaged (convolution_product.cuh). It stores rows of dz and sums dz and
// dz * (raw - mean) of the numbers as stored. `columns` is the number of channels of x; a block
// handles a group of them from `first_column` on.
template <typename T>
struct InputGradientEpilogue {
  LazyView<T> x;
  InputGradientView<T> dx;
  int columns;
  int first_column;
  const float* scales;  // this and the next two: in shared memory, per channel from first_column
  const float* shifts;
  const float* means;

  __device__ __forceinline__ bool Begin(const float*, int) const { return false; }

  __device__ __forceinline__ void Finish(int row, int n, float values[8], float partial[2][8]) {
    const int count = min(columns - first_column - n, 8);
    if (count <= 0) return;
    const int64_t offset = static_cast<int64_t>(row) * columns + first_column + n;
    const Bounds bounds = BoundsOf(x.activation);
    const bool needs_raw = x.norm.gamma != nullptr || x.activation != Activation::kNone;
    if (columns % 8 == 0) return FinishVector(offset, n, bounds, needs_raw, values, partial);
    for (int e = 0; e < count; ++e) {
      const float raw = needs_raw ? ToFloat(x.raw[offset + e]) : 0.0f;
      const float add = dx.add != nullptr ? ToFloat(dx.add[offset + e]) : 0.0f;
      const float z = raw * scales[n + e] + shifts[n + e];
      const float dz = Rounded<T>(Masked(values[e] + add, z, bounds));
      partial[0][e] += dz;
      partial[1][e] += dz * (raw - means[n + e]);
      dx.dz[offset + e] = FromFloat<T>(dz);
    }
  }

  // Writes scales, shifts and means of `channels` channels from first_column to `out`. The three
  // vectors are `stride` floats apart. All threads of the block call it.
  static __device__ __forceinline__ void FillCoefficients(const NormView& norm, int first_column,
                                                          int channels, int stride, float* out) {
    for (int n = threadIdx.x; n < channels; n += blockDim.x) {
      const ScaleShift z = NormCoefficients(norm, first_column + n);
      out[n] = z.scale;
      out[stride + n] = z.shift;
      out[2 * stride + n] = norm.gamma != nullptr ? norm.mean[first_column + n] : 0.0f;
    }
  }

 private:
  __device__ __forceinline__ void FinishVector(int64_t offset, int n, Bounds bounds, bool needs_raw,
                                               float values[8], float partial[2][8]) const {
    float raw[8] = {};
    if (needs_raw) Load8(x.raw + offset, raw);
    if (dx.add != nullptr) {
      float add[8];
      Load8(dx.add + offset, add);
#pragma unroll
      for (int e = 0; e < 8; ++e) values[e] += add[e];
    }
    // Four coefficients at a time need fewer registers.
#pragma unroll
    for (int e = 0; e < 8; e += 4) {
      const float4 scale = *reinterpret_cast<const float4*>(scales + n + e);
      const float4 shift = *reinterpret_cast<const float4*>(shifts + n + e);
      values[e] = Masked(values[e], raw[e] * scale.x + shift.x, bounds);
      values[e + 1] = Masked(values[e + 1], raw[e + 1] * scale.y + shift.y, bounds);
      values[e + 2] = Masked(values[e + 2], raw[e + 2] * scale.z + shift.z, bounds);
      values[e + 3] = Masked(values[e + 3], raw[e + 3] * scale.w + shift.w, bounds);
    }
    StoreToDevice8(Round8<T>(values), dx.dz + offset);
#pragma unroll
    for (int e = 0; e < 8; e += 4) {
      const float4 mean = *reinterpret_cast<const float4*>(means + n + e);
      partial[1][e] += values[e] * (raw[e] - mean.x);
      partial[1][e + 1] += values[e + 1] * (raw[e + 1] - mean.y);
      partial[1][e + 2] += values[e + 2] * (raw[e + 2] - mean.z);
      partial[1][e + 3] += values[e + 3] * (raw[e + 3] - mean.w);
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) partial[0][e] += values[e];
  }
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_INPUT_GRADIENT_EPILOGUE_CUH_
