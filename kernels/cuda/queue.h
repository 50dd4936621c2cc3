// A queue that kernels are launched on: a CUDA stream and its first error. A plain struct; not
// thread-safe.
#ifndef PUSHPULL_KERNELS_CUDA_QUEUE_H_
#define PUSHPULL_KERNELS_CUDA_QUEUE_H_

#include "kernels/cuda/platform.h"

namespace pushpull::PUSHPULL_CUDA {

struct Queue {
  cudaStream_t stream = nullptr;
  int device = 0;  // the index of the stream's device
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

  // Keeps `result` if it is the first error. `call` must be a static string.
  void Note(cudaError_t result, const char* call) {
    if (result == cudaSuccess || error != cudaSuccess) return;
    error = result;
    failed_call = call;
  }
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_QUEUE_H_
