// Reductions over the threads of a warp or a block, in a fixed order.
#ifndef PUSHPULL_KERNELS_CUDA_BLOCK_SUM_CUH_
#define PUSHPULL_KERNELS_CUDA_BLOCK_SUM_CUH_

#include "kernels/cuda/platform.h"

namespace pushpull::PUSHPULL_CUDA {

inline constexpr unsigned kAllLanes = 0xffffffffu;
inline constexpr int kWarpLanes = 32;

// Returns to each lane the sum over its group of `lanes` neighbouring lanes; `lanes` is a power of
// two, at most 32. All lanes of the warp must call. It is a butterfly: log2(lanes) shuffles without
// shared memory.
template <typename T>
__device__ __forceinline__ T LaneSum(T value, int lanes = kWarpLanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// As LaneSum, for the maximum. NaNs are ignored.
__device__ __forceinline__ float LaneMax(float value, int lanes = kWarpLanes) {
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

// Replaces values[i] by its sum over all threads of the block. Each warp sums by LaneSum and writes
// a row of kCount sums to `shared`, [warps][kCount]; then every thread adds the rows in order. All
// threads must call, and the block's size must be a multiple of 32. `shared` can be reused at once.
template <int kCount>
__device__ __forceinline__ void BlockSum(double values[kCount], double* shared) {
  const int warp = threadIdx.x / kWarpLanes, warps = blockDim.x / kWarpLanes;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = LaneSum(values[i]);
    if (threadIdx.x % kWarpLanes == 0) shared[warp * kCount + i] = values[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = 0.0;
    for (int w = 0; w < warps; ++w) values[i] += shared[w * kCount + i];
  }
  __syncthreads();
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_BLOCK_SUM_CUH_
