// Copies from device memory to shared memory that run beside the thread that starts them, without
// passing through registers (cp.async). A thread starts copies, closes them into groups, and waits
// until all but the newest groups are done. Other threads see the numbers after a barrier that
// follows the wait. The last functions are hints that bring numbers to the L2 cache before they are
// loaded.
#ifndef PUSHPULL_KERNELS_CUDA_ASYNC_COPY_CUH_
#define PUSHPULL_KERNELS_CUDA_ASYNC_COPY_CUH_

#include "kernels/cuda/numbers.cuh"
#ifdef PUSHPULL_CUDA_EMULATION
#include "kernels/cuda/emulation/async_copies.h"
#endif

namespace pushpull::PUSHPULL_CUDA {

// Copies eight numbers, or writes zeros if `present` is false; `from` is an address in device
// memory all the same. Both addresses are multiples of 16. Devices before 8.0 copy at once.
__device__ __forceinline__ void StartCopy8(const Bfloat16* from, bool present, Bfloat16* to) {
#if defined(PUSHPULL_CUDA_EMULATION)
  CheckVector(from, sizeof(uint4));
  CheckVector(to, sizeof(uint4));
  emulation::StartAsyncCopy({present ? from : nullptr, to});
  // Until the copy is waited for, the place has no defined contents. In emulation they are NaNs.
  *reinterpret_cast<uint4*>(to) = make_uint4(~0u, ~0u, ~0u, ~0u);
#elif __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(__cvta_generic_to_global(from)), "r"(present ? 16 : 0)
               : "memory");
#else
  StoreRaw8(present ? LoadRaw8(from) : Raw8<Bfloat16>{}, to);
#endif
}

// Closes a group of the copies that this thread has started since the last one; it may be empty.
__device__ __forceinline__ void CloseCopyGroup() {
#if defined(PUSHPULL_CUDA_EMULATION)
  emulation::CloseAsyncGroup();
#elif __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all groups of this thread but the newest kNewest.
template <int kNewest>
__device__ __forceinline__ void WaitForCopies() {
#if defined(PUSHPULL_CUDA_EMULATION)
  for (const emulation::AsyncCopy& copy : emulation::TakeAsyncCopies(kNewest)) {
    const auto* const from = static_cast<const uint4*>(copy.from);
    *static_cast<uint4*>(copy.to) = from != nullptr ? *from : make_uint4(0, 0, 0, 0);
  }
#elif __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
#endif
}

// Asks for the line of device memory at an address to come to the L2 cache, without waiting for it.
// It is a hint.
__device__ __forceinline__ void PrefetchLine(const void* address) {
#ifdef PUSHPULL_CUDA_EMULATION
  (void)address;
#else
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(address)));
#endif
}
// The same for `bytes` bytes, whose lines the threads of the block share.
__device__ __forceinline__ void PrefetchBytes(const void* from, int64_t bytes) {
  constexpr int kLine = 128;
  for (int64_t i = int64_t{threadIdx.x} * kLine; i < bytes; i += int64_t{blockDim.x} * kLine) {
    PrefetchLine(static_cast<const char*>(from) + i);
  }
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_ASYNC_COPY_CUH_
