// Raw numbers on their way from device memory to shared memory, some chunks before the elements of
// a tile are formed from them. A thread reads only what it has copied itself, so it waits for its
// own copies and for no other thread.
#ifndef PUSHPULL_KERNELS_CUDA_RAW_RING_CUH_
#define PUSHPULL_KERNELS_CUDA_RAW_RING_CUH_

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/tile_math.cuh"

namespace pushpull::PUSHPULL_CUDA {

// The chunks that are under way while another is multiplied. On an H100 three were no faster than
// two. With one, for devices with little shared memory, a thread waits for all of its copies.
inline constexpr int kRingSlots = 2;

// Returns the bytes of a slot that has `vectors` vectors of eight numbers for each thread.
PUSHPULL_HOST_DEVICE constexpr int RingSlotBytes(int vectors) {
  return vectors * kTileThreads * 8 * static_cast<int>(sizeof(Bfloat16));
}

// A thread's places in `slots` slots, which are used by turns. Those of neighbouring threads are
// next to each other, so that the accesses of a warp meet all banks.
class RawRing {
 public:
  // `vectors` is for each thread and slot.
  __device__ __forceinline__ RawRing(unsigned char* shared, int slots, int vectors)
      : own_(reinterpret_cast<Bfloat16*>(shared) + threadIdx.x * 8),
        slots_(slots),
        vectors_(vectors) {}

  __device__ __forceinline__ int slots() const { return slots_; }
  __device__ __forceinline__ int After(int slot) const { return slot + 1 < slots_ ? slot + 1 : 0; }

  // As StartCopy8; closing the group is left to the caller.
  __device__ __forceinline__ void Start(const Bfloat16* from, bool present, int slot,
                                        int vector) const {
    StartCopy8(from, present, Place(slot, vector));
  }
  // Waits for the oldest slot, if the copies for each of `slots` chunks are a group, and no others
  // have been started since.
  __device__ __forceinline__ void Wait() const {
    if (slots_ == kRingSlots) {
      WaitForCopies<kRingSlots - 1>();
    } else {
      WaitForCopies<0>();
    }
  }
  __device__ __forceinline__ Raw8<Bfloat16> Read(int slot, int vector) const {
    return LoadRaw8(Place(slot, vector));
  }

 private:
  __device__ __forceinline__ Bfloat16* Place(int slot, int vector) const {
    return own_ + (slot * vectors_ + vector) * (kTileThreads * 8);
  }

  Bfloat16* const own_;
  const int slots_, vectors_;
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_RAW_RING_CUH_
