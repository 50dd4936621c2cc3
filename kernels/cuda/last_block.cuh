// Lets the last block of a kernel finish what all blocks have begun, so that no second kernel is
// needed to combine their partial results.
#ifndef PUSHPULL_KERNELS_CUDA_LAST_BLOCK_CUH_
#define PUSHPULL_KERNELS_CUDA_LAST_BLOCK_CUH_

#include "kernels/cuda/queue.h"

namespace pushpull::PUSHPULL_CUDA {

// Counts the calling block at `counter`, one of Queue::arrivals, and returns to all of its threads
// whether it is the last of `blocks` blocks. If so, it sees everything that these blocks wrote to
// device memory before they called, and the counter is zero again. All threads of the block must
// call. `flag` is four bytes of shared memory; the other shared memory may be overwritten
// afterwards.
//
// Why the memory is visible: the barrier puts the writes of a block's threads before thread 0's
// fence, and a fence covers all writes that happened before it, whichever thread made them. The
// atomic operation carries that to the last block, whose thread 0 has a fence after it, and the
// second barrier passes it on to the other threads. Which block is last differs from run to run,
// but what it computes must not depend on that. The last block should read with __ldcg: what other
// blocks wrote is in the L2 cache, never in the multiprocessor's own L1 cache.
__device__ __forceinline__ bool ArrivesLast(unsigned* counter, unsigned blocks, unsigned* flag) {
  __syncthreads();
  if ((threadIdx.x | threadIdx.y | threadIdx.z) == 0) {
    __threadfence();
    *flag = atomicInc(counter, blocks - 1);  // becomes 0 again after blocks - 1
    __threadfence();
  }
  __syncthreads();
  return *flag == blocks - 1;
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_LAST_BLOCK_CUH_
