// Loading and storing the numbers of a network, one or eight at a time.
#ifndef PUSHPULL_KERNELS_CUDA_NUMBERS_CUH_
#define PUSHPULL_KERNELS_CUDA_NUMBERS_CUH_

#include "kernels/bfloat16.h"
#include "kernels/cuda/platform.h"

namespace pushpull::PUSHPULL_CUDA {

// To the nearest T.
template <typename T>
__device__ __forceinline__ T FromFloat(float value);
template <>
__device__ __forceinline__ float FromFloat<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ Bfloat16 FromFloat<Bfloat16>(float value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  Bfloat16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else
  return ToBfloat16(value);
#endif
}

// As it is after a store and a load.
template <typename T>
__device__ __forceinline__ float Rounded(float value) {
  return ToFloat(FromFloat<T>(value));
}

// Two numbers in the order of memory, the first in the low half.
__device__ __forceinline__ unsigned PackBfloat16(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  unsigned packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return static_cast<unsigned>(ToBfloat16(low).bits) | static_cast<unsigned>(ToBfloat16(high).bits)
                                                           << 16;
#endif
}

// Eight neighbours; the address is a multiple of their size (16 or 32 bytes).
__device__ __forceinline__ void Load8(const Bfloat16* from, float out[8]) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}

__device__ __forceinline__ void Load8(const float* from, float out[8]) {
  const float4* const vectors = reinterpret_cast<const float4*>(from);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 v = vectors[i];
    out[4 * i] = v.x;
    out[4 * i + 1] = v.y;
    out[4 * i + 2] = v.z;
    out[4 * i + 3] = v.w;
  }
}

__device__ __forceinline__ void Store8(const float values[8], Bfloat16* to) {
  *reinterpret_cast<uint4*>(to) =
      make_uint4(PackBfloat16(values[0], values[1]), PackBfloat16(values[2], values[3]),
                 PackBfloat16(values[4], values[5]), PackBfloat16(values[6], values[7]));
}

__device__ __forceinline__ void Store8(const float values[8], float* to) {
  float4* const vectors = reinterpret_cast<float4*>(to);
  vectors[0] = make_float4(values[0], values[1], values[2], values[3]);
  vectors[1] = make_float4(values[4], values[5], values[6], values[7]);
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_NUMBERS_CUH_
