// The part of CUDA's device language that this project's kernels use, on the CPU: keywords,
// built-in variables, vector types and intrinsics. It replaces the CUDA headers if
// PUSHPULL_CUDA_EMULATION is defined. Only tests use it. CUDA's documentation describes the
// functions.
#ifndef PUSHPULL_KERNELS_CUDA_EMULATION_DEVICE_FUNCTIONS_H_
#define PUSHPULL_KERNELS_CUDA_EMULATION_DEVICE_FUNCTIONS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/emulation/shared_accesses.h"
#include "kernels/cuda/emulation/thread_block.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx ::pushpull::emulation::Unpack(::pushpull::emulation::PackedThreadIndex())
#define blockIdx ::pushpull::emulation::Unpack(::pushpull::emulation::PackedBlockIndex())
#define blockDim ::pushpull::emulation::Unpack(::pushpull::emulation::PackedBlockSize())
#define gridDim ::pushpull::emulation::Unpack(::pushpull::emulation::PackedGridSize())

using dim3 = ::pushpull::emulation::Dim3;

// These types may alias others: kernels read numbers of other types through pointers to them.
struct [[gnu::may_alias]] alignas(8) float2 {
  float x, y;
};
struct [[gnu::may_alias]] alignas(16) float4 {
  float x, y, z, w;
};
struct [[gnu::may_alias]] alignas(8) uint2 {
  unsigned x, y;
};
struct [[gnu::may_alias]] alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

using std::max;
using std::min;
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

inline void __syncthreads() { ::pushpull::emulation::SyncThreads(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  ::pushpull::emulation::CheckMask(mask);
  ::pushpull::emulation::SyncWarp();
}

template <typename T>
T __shfl_sync(unsigned mask, T value, unsigned lane) {
  ::pushpull::emulation::CheckMask(mask);
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = ::pushpull::emulation::ShuffleBits(bits, lane);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, unsigned lanes) {
  return __shfl_sync(mask, value, ::pushpull::emulation::LaneId() ^ lanes);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  ::pushpull::emulation::CheckMask(mask);
  const ::pushpull::emulation::LaneValues* const lanes =
      ::pushpull::emulation::GatherWarp({{predicate != 0}});
  unsigned votes = 0;
  for (int l = 0; l < 32; ++l) votes |= static_cast<unsigned>(lanes[l].values[0]) << l;
  return votes;
}

// Emulated threads switch only at barriers and warp operations, so plain accesses are atomic. The
// compiler must not report them as plain accesses, because atomic operations do not race.
template <typename T>
__attribute__((no_sanitize("thread"), noinline)) T atomicMin(T* address, T value) {
  ::pushpull::emulation::NoteAccess(::pushpull::emulation::AccessKind::kAtomic, address, sizeof(T));
  const T old = *address;
  *address = value < old ? value : old;
  return old;
}
inline unsigned atomicInc(unsigned* address, unsigned most) {
  const unsigned old = *address;
  *address = old >= most ? 0 : old + 1;
  return old;
}
inline void __threadfence() {}  // blocks run one after another

template <typename T>
T __ldcg(const T* address) {
  return *address;
}
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

#endif  // PUSHPULL_KERNELS_CUDA_EMULATION_DEVICE_FUNCTIONS_H_
