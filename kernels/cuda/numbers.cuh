// Converts, loads and stores the numbers of a network, one or eight at a time.
#ifndef PUSHPULL_KERNELS_CUDA_NUMBERS_CUH_
#define PUSHPULL_KERNELS_CUDA_NUMBERS_CUH_

#include "kernels/bfloat16.h"
#include "kernels/cuda/platform.h"

namespace pushpull::PUSHPULL_CUDA {

// Makes the compiler keep a number. It would rather compute many again in each turn of a loop, to
// save registers.
__device__ __forceinline__ void KeepInRegister(int* number) {
#ifndef PUSHPULL_CUDA_EMULATION
  asm volatile("" : "+r"(*number));
#else
  (void)number;
#endif
}

// Rounds to the nearest T, ties to even.
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

// The value after it has been stored as T and loaded again. Sums are taken over such values, so
// that they agree with the tensor that later kernels read.
template <typename T>
__device__ __forceinline__ float Rounded(float value) {
  return ToFloat(FromFloat<T>(value));
}

// Packs two numbers in the order of memory: the first is in the low half.
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

// Eight neighbouring numbers as they are in memory. Kernels load them early and unpack them late:
// loads of Bfloat16 that are under way then occupy half the registers. The address must be a
// multiple of the size (16 or 32 bytes).
template <typename T>
struct Raw8;
template <>
struct Raw8<Bfloat16> {
  uint4 bits;
};
template <>
struct Raw8<float> {
  float4 low, high;
};

// In emulation, ends the process if an address of a vector is not aligned.
__device__ __forceinline__ void CheckVector(const void* address, size_t bytes) {
#ifdef PUSHPULL_CUDA_EMULATION
  emulation::CheckAlignment(address, bytes);
#else
  (void)address;
  (void)bytes;
#endif
}

__device__ __forceinline__ Raw8<Bfloat16> LoadRaw8(const Bfloat16* from) {
  CheckVector(from, sizeof(uint4));
  return {*reinterpret_cast<const uint4*>(from)};
}
__device__ __forceinline__ Raw8<float> LoadRaw8(const float* from) {
  CheckVector(from, sizeof(float4));
  const float4* const vectors = reinterpret_cast<const float4*>(from);
  return {vectors[0], vectors[1]};
}

// Loads only the first `count` numbers, from the address of any number; the others are zeros. Eight
// are loaded by words of 4 bytes, and then a number beside them may be read, too: one that precedes
// them in the word of the first, or follows them in that of the last. Otherwise they are loaded one
// by one.
__device__ __forceinline__ Raw8<Bfloat16> LoadRaw8(const Bfloat16* from, int count) {
  unsigned words[4] = {};
  if (count >= 8) {
    const bool odd = reinterpret_cast<size_t>(from) % 4 != 0;
    const auto* const aligned = reinterpret_cast<const unsigned*>(from - odd);
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = aligned[i];
    if (odd) {
      const unsigned last = aligned[4];
#pragma unroll
      for (int i = 0; i < 3; ++i) words[i] = words[i] >> 16 | words[i + 1] << 16;
      words[3] = words[3] >> 16 | last << 16;
    }
    return {make_uint4(words[0], words[1], words[2], words[3])};
  }
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (e < count) words[e / 2] |= static_cast<unsigned>(from[e].bits) << e % 2 * 16;
  }
  return {make_uint4(words[0], words[1], words[2], words[3])};
}
__device__ __forceinline__ Raw8<float> LoadRaw8(const float* from, int count) {
  float values[8] = {};
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    if (e < count) values[e] = from[e];
  }
  return {make_float4(values[0], values[1], values[2], values[3]),
          make_float4(values[4], values[5], values[6], values[7])};
}

__device__ __forceinline__ void Unpack8(const Raw8<Bfloat16>& raw, float out[8]) {
  const unsigned words[4] = {raw.bits.x, raw.bits.y, raw.bits.z, raw.bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = __uint_as_float(words[i] << 16);
    out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}
__device__ __forceinline__ void Unpack8(const Raw8<float>& raw, float out[8]) {
  const float values[8] = {raw.low.x,  raw.low.y,  raw.low.z,  raw.low.w,
                           raw.high.x, raw.high.y, raw.high.z, raw.high.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) out[i] = values[i];
}

template <typename T>
__device__ __forceinline__ void Load8(const T* from, float out[8]) {
  Unpack8(LoadRaw8(from), out);
}

// Rounds eight numbers to T, two per instruction, and packs them as they are in memory.
template <typename T>
__device__ __forceinline__ Raw8<T> Pack8(const float values[8]);
template <>
__device__ __forceinline__ Raw8<Bfloat16> Pack8<Bfloat16>(const float values[8]) {
  return {make_uint4(PackBfloat16(values[0], values[1]), PackBfloat16(values[2], values[3]),
                     PackBfloat16(values[4], values[5]), PackBfloat16(values[6], values[7]))};
}
template <>
__device__ __forceinline__ Raw8<float> Pack8<float>(const float values[8]) {
  return {make_float4(values[0], values[1], values[2], values[3]),
          make_float4(values[4], values[5], values[6], values[7])};
}

// The same, and leaves the rounded numbers in `values`.
template <typename T>
__device__ __forceinline__ Raw8<T> Round8(float values[8]) {
  const Raw8<T> raw = Pack8<T>(values);
  Unpack8(raw, values);
  return raw;
}

__device__ __forceinline__ void StoreRaw8(const Raw8<Bfloat16>& raw, Bfloat16* to) {
  CheckVector(to, sizeof(uint4));
  *reinterpret_cast<uint4*>(to) = raw.bits;
}
__device__ __forceinline__ void StoreRaw8(const Raw8<float>& raw, float* to) {
  CheckVector(to, sizeof(float4));
  float4* const vectors = reinterpret_cast<float4*>(to);
  vectors[0] = raw.low;
  vectors[1] = raw.high;
}

// Stores eight numbers to device memory; `to` must not be in shared memory. For bfloat16 it is one
// instruction of 16 bytes. The compiler may split an ordinary store into four of 4 bytes.
__device__ __forceinline__ void StoreToDevice8(const Raw8<Bfloat16>& raw, Bfloat16* to) {
#ifdef PUSHPULL_CUDA_EMULATION
  StoreRaw8(raw, to);
#else
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)),
               "r"(raw.bits.x), "r"(raw.bits.y), "r"(raw.bits.z), "r"(raw.bits.w)
               : "memory");
#endif
}
__device__ __forceinline__ void StoreToDevice8(const Raw8<float>& raw, float* to) {
  StoreRaw8(raw, to);
}

template <typename T>
__device__ __forceinline__ void Store8(const float values[8], T* to) {
  StoreRaw8(Pack8<T>(values), to);
}

// Loads eight floats from shared memory or, if kInShared is false, from device memory. For a
// pointer that may be either, the compiler would take an instruction that finds out each time.
template <bool kInShared>
__device__ __forceinline__ void Load8From(const float* from, float out[8]) {
#ifdef PUSHPULL_CUDA_EMULATION
  Load8(from, out);
#else
  if constexpr (kInShared) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(from));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(out[4 * i]), "=f"(out[4 * i + 1]), "=f"(out[4 * i + 2]),
                     "=f"(out[4 * i + 3])
                   : "r"(address + 16 * i));
    }
  } else {
    const size_t address = __cvta_generic_to_global(from);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(out[4 * i]), "=f"(out[4 * i + 1]), "=f"(out[4 * i + 2]),
                     "=f"(out[4 * i + 3])
                   : "l"(address + 16 * i));
    }
  }
#endif
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_NUMBERS_CUH_
