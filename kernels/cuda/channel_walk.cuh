// Helpers for kernels that walk over dense tensors kWidth neighbouring numbers at a time: 8, or 1
// if the number of channels or an address does not allow 8. Eight Bfloat16 are one 16-byte access,
// the widest there is.
#ifndef PUSHPULL_KERNELS_CUDA_CHANNEL_WALK_CUH_
#define PUSHPULL_KERNELS_CUDA_CHANNEL_WALK_CUH_

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/views.cuh"

namespace pushpull::PUSHPULL_CUDA {

inline constexpr int kWalkThreads = 256;

// Returns the number of blocks of kWalkThreads threads for a grid-stride loop over `items`. Eight
// blocks per multiprocessor (2048 threads) fill it, so there are never more.
inline unsigned WalkBlocks(const Queue& queue, int64_t items) {
  return static_cast<unsigned>(std::min<int64_t>((items + kWalkThreads - 1) / kWalkThreads,
                                                 int64_t{8} * queue.multiprocessors));
}

// Returns the number of blocks for threads that stay with their channels, because they compute the
// channels' coefficients first. Each thread gets four items or more if there are enough for that.
// There are at least `channel_items` threads, the items of a row; the stride would be 0 with fewer.
inline unsigned ChannelWalkBlocks(const Queue& queue, int64_t items, int channel_items) {
  return std::max(WalkBlocks(queue, (items + 3) / 4),
                  static_cast<unsigned>((channel_items + kWalkThreads - 1) / kWalkThreads));
}

// Returns whether rows of `channels` numbers at these addresses can be accessed eight numbers at a
// time. Addresses may be null.
inline bool CanWalkWide(int64_t channels, std::initializer_list<const void*> addresses) {
  return channels % 8 == 0 && std::all_of(addresses.begin(), addresses.end(), [](const void* a) {
           return reinterpret_cast<uintptr_t>(a) % 32 == 0;
         });
}

template <int kWidth, typename T>
__device__ __forceinline__ void LoadWide(const T* from, float out[kWidth]) {
  if constexpr (kWidth == 8) {
    Load8(from, out);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out[i] = ToFloat(from[i]);
  }
}

template <int kWidth, typename T>
__device__ __forceinline__ void StoreWide(const float values[kWidth], T* to) {
  if constexpr (kWidth == 8) {
    Store8(values, to);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) to[i] = FromFloat<T>(values[i]);
  }
}

template <int kWidth>
__device__ __forceinline__ void LoadCoefficients(const NormView& norm, int channel,
                                                 ScaleShift out[kWidth]) {
#pragma unroll
  for (int i = 0; i < kWidth; ++i) out[i] = NormCoefficients(norm, channel + i);
}

// Computes kWidth values of x from `index` on. `norm` holds the coefficients of their channels.
template <int kWidth, typename T>
__device__ __forceinline__ void LoadValue(const LazyView<T>& x, const ScaleShift norm[kWidth],
                                          int64_t index, float value[kWidth]) {
  if (x.applied != nullptr) {
    LoadWide<kWidth>(x.applied + index, value);
    return;
  }
  LoadWide<kWidth>(x.raw + index, value);
  if (x.norm.gamma != nullptr) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) value[i] = norm[i].scale * value[i] + norm[i].shift;
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) value[i] = Clamp(value[i], x.bounds);
  if (x.skip != nullptr) {
    float skip[kWidth];
    LoadWide<kWidth>(x.skip + index, skip);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) value[i] += skip[i];
  }
}

// Queues a kernel that writes the value of x to out[shape], or copies x.applied if there is one.
template <typename T>
void WriteValue(Queue* queue, const LazyView<T>& x, const Shape& shape, T* out);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CHANNEL_WALK_CUH_
