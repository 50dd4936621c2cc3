// The last step of an input gradient: turns the gradient of the value of x into dz, the gradient of
// its normalised value, and sums what the batch norm of x needs.
#ifndef PUSHPULL_KERNELS_CUDA_INPUT_GRADIENT_EPILOGUE_CUH_
#define PUSHPULL_KERNELS_CUDA_INPUT_GRADIENT_EPILOGUE_CUH_

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
    const bool vectors = columns % 8 == 0;
    const bool needs_raw = x.norm.gamma != nullptr || x.activation != Activation::kNone;
    float raw[8] = {}, add[8] = {};
    if (needs_raw) Read(x.raw + offset, count, vectors, raw);
    if (dx.add != nullptr) Read(dx.add + offset, count, vectors, add);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e >= count) continue;
      const float slope = ActivationSlope(x.activation, raw[e] * scales[n + e] + shifts[n + e]);
      values[e] = Rounded<T>((values[e] + add[e]) * slope);
      partial[0][e] += values[e];
      partial[1][e] += values[e] * (raw[e] - means[n + e]);
    }
    if (vectors) {
      Store8(values, dx.dz + offset);
      return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e < count) dx.dz[offset + e] = FromFloat<T>(values[e]);
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
  static __device__ __forceinline__ void Read(const T* from, int count, bool vectors,
                                              float out[8]) {
    if (vectors) {
      Load8(from, out);
      return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e < count) out[e] = ToFloat(from[e]);
    }
  }
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_INPUT_GRADIENT_EPILOGUE_CUH_
