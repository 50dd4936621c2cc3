// The last step of an input gradient: turns the gradient of the value of x into dz, the gradient of
// its normalised value, and sums what the batch norm of x needs.
#ifndef PUSHPULL_KERNELS_CUDA_INPUT_GRADIENT_EPILOGUE_CUH_
#define PUSHPULL_KERNELS_CUDA_INPUT_GRADIENT_EPILOGUE_CUH_

#include "kernels/cuda/clamp.cuh"
#include "kernels/cuda/convolution_epilogue.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/views.cuh"

namespace pushpull::PUSHPULL_CUDA {

// An epilogue of FinishStaged (convolution_epilogue.cuh). It stores rows of dz and sums dz and
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

  static constexpr int kUnroll = 2;  // of the loop over rows, so that loads are under way together

  // What a thread needs for eight neighbouring columns, in registers.
  struct Columns {
    float scale[8], shift[8], mean[8];
  };

  __device__ __forceinline__ bool WantsFirstRow() const { return false; }
  __device__ __forceinline__ void Begin(float, int) const {}

  __device__ __forceinline__ EpilogueCase which() const {
    if (columns % 8 != 0) return EpilogueCase::kAny;
    return dx.add != nullptr ? EpilogueCase::kVectorsMore : EpilogueCase::kVectors;
  }

  // The place of a number in the tensor, which FinishVector and Finish take.
  __device__ __forceinline__ int64_t OffsetOf(int row, int n) const {
    return static_cast<int64_t>(row) * columns + first_column + n;
  }
  __device__ __forceinline__ Columns Load(int n) const {
    Columns k;
    Load8(scales + n, k.scale);
    Load8(shifts + n, k.shift);
    Load8(means + n, k.mean);
    return k;
  }

  template <EpilogueCase kCase>
  __device__ __forceinline__ void FinishVector(int64_t offset, int n, const Columns& k,
                                               float values[8], float partial[2][8]) const {
    if (first_column + n >= columns) return;
    const Bounds bounds = x.bounds;
    float raw[8];
    Load8(x.raw + offset, raw);
    if constexpr (kCase == EpilogueCase::kVectorsMore) {
      float add[8];
      Load8(dx.add + offset, add);
#pragma unroll
      for (int e = 0; e < 8; ++e) values[e] += add[e];
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      values[e] = Masked(values[e], raw[e] * k.scale[e] + k.shift[e], bounds);
    }
    StoreToDevice8(Round8<T>(values), dx.dz + offset);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      partial[0][e] += values[e];
      partial[1][e] += values[e] * (raw[e] - k.mean[e]);
    }
  }

  __device__ __forceinline__ void Finish(int64_t offset, int n, float values[8],
                                         float partial[2][8]) const {
    const int count = min(columns - first_column - n, 8);
    const Bounds bounds = x.bounds;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e >= count) continue;
      const float raw = ToFloat(x.raw[offset + e]);
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
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_INPUT_GRADIENT_EPILOGUE_CUH_
