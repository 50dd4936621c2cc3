// Launches kernels, on CUDA or its emulation, and gives them their shared memory.
#ifndef PUSHPULL_KERNELS_CUDA_LAUNCH_CUH_
#define PUSHPULL_KERNELS_CUDA_LAUNCH_CUH_

#include <cstddef>

#include "kernels/cuda/queue.h"
#ifdef PUSHPULL_CUDA_EMULATION
#include "kernels/cuda/emulation/launch_list.h"
#endif

namespace pushpull::PUSHPULL_CUDA {

struct LaunchShape {
  dim3 grid, block;
  size_t shared_bytes = 0;
};

// Queues kernel(arguments...) on the queue's stream. `name` is a static string for messages. It
// does nothing if the grid is empty or the queue has an error. More shared memory than the device
// allows is an error of the queue.
template <typename... Parameters, typename... Arguments>
void Launch(Queue* queue, const char* name, const LaunchShape& shape, void (*kernel)(Parameters...),
            Arguments... arguments) {
  if (shape.grid.x == 0 || !queue->Enter()) return;
  if (shape.shared_bytes > static_cast<size_t>(queue->shared_bytes_limit)) {
    queue->Note(cudaErrorInvalidValue, name);
    return;
  }
#ifdef PUSHPULL_CUDA_EMULATION
  if (emulation::ListsLaunches()) {
    emulation::ListLaunch(queue->stream, name, shape.grid, shape.block);
    return;
  }
  EnqueueKernel(queue->stream, [=] {
    emulation::RunGrid(name, shape.grid, shape.block, shape.shared_bytes,
                       [&] { kernel(arguments...); });
  });
#else
  constexpr size_t kWithoutAsking = 48 * 1024;
  if (shape.shared_bytes > kWithoutAsking) {
    queue->Note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(shape.shared_bytes)),
                name);
  }
  kernel<<<shape.grid, shape.block, shape.shared_bytes, queue->stream>>>(arguments...);
#endif
  queue->Note(cudaGetLastError(), name);
}

// Returns the block's dynamic shared memory, 16-byte aligned.
__device__ __forceinline__ unsigned char* SharedBytes() {
#ifdef PUSHPULL_CUDA_EMULATION
  return emulation::SharedMemory();
#else
  extern __shared__ __align__(16) unsigned char pushpull_shared_bytes[];
  return pushpull_shared_bytes;
#endif
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_LAUNCH_CUH_
