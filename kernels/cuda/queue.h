// A queue that kernels are launched on: a CUDA stream and its first error. A plain struct; not
// thread-safe.
#ifndef PUSHPULL_KERNELS_CUDA_QUEUE_H_
#define PUSHPULL_KERNELS_CUDA_QUEUE_H_

#include <cstdint>

#include "kernels/cuda/platform.h"

namespace pushpull::PUSHPULL_CUDA {

// The number of counters in Queue::arrivals, and the bytes of Queue::scratch.
inline constexpr int kArrivalCounters = 1024;
inline constexpr int64_t kScratchBytes = 16 * 1024;

struct Queue {
  cudaStream_t stream = nullptr;
  int device = 0;  // the index of the stream's device
  // Device memory that the stream's kernels use in turns; null until AllocateShared. The counters
  // are zeros between kernels (last_block.cuh), the scratch memory has no content then.
  unsigned* arrivals = nullptr;
  void* scratch = nullptr;
  // Properties of the device.
  int multiprocessors = 1;
  int shared_bytes_limit = 48 * 1024;  // the most shared memory of one block
  // Launches are recorded into a graph instead of running.
  bool recording = false;
  // The error and the name of the first call that failed. Once they are set, launches do nothing.
  cudaError_t error = cudaSuccess;
  const char* failed_call = "";

  // Makes the device that of the calling thread, and returns whether work can be queued. Call it
  // before anything that CUDA does on the thread's device: launches, events and allocations. A
  // thread begins with device 0, whichever device another thread has chosen.
  bool Enter() {
    if (error != cudaSuccess) return false;
    int current = -1;
    if (cudaGetDevice(&current) == cudaSuccess && current == device) return true;
    Note(cudaSetDevice(device), "choice of the device");
    return error == cudaSuccess;
  }

  // Allocates arrivals and scratch on the queue's device. FreeShared frees them; no kernel may run
  // then.
  void AllocateShared() {
    if (!Enter()) return;
    constexpr size_t kCounterBytes = kArrivalCounters * sizeof(unsigned);
    void* memory = nullptr;
    Note(cudaMalloc(&memory, kCounterBytes + kScratchBytes), "allocation for kernels");
    if (error != cudaSuccess) return;
    arrivals = static_cast<unsigned*>(memory);
    scratch = arrivals + kArrivalCounters;
    Note(cudaMemsetAsync(arrivals, 0, kCounterBytes, stream), "memset");
  }
  void FreeShared() {
    cudaFree(arrivals);
    arrivals = nullptr;
    scratch = nullptr;
  }

  // Keeps `result` if it is the first error. `call` must be a static string.
  void Note(cudaError_t result, const char* call) {
    if (result == cudaSuccess || error != cudaSuccess) return;
    error = result;
    failed_call = call;
  }
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_QUEUE_H_
