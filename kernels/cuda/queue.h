// Where kernels are launched: a stream, and the first error on it. Not thread-safe.
#ifndef PUSHPULL_KERNELS_CUDA_QUEUE_H_
#define PUSHPULL_KERNELS_CUDA_QUEUE_H_

#include "kernels/cuda/platform.h"

namespace pushpull::PUSHPULL_CUDA {

struct Queue {
  cudaStream_t stream = nullptr;
  // Of the device.
  int multiprocessors = 1;
  int shared_bytes_limit = 48 * 1024;  // of one block
  // The first call that failed; later ones do nothing.
  cudaError_t error = cudaSuccess;
  const char* failed_call = "";

  void Note(cudaError_t result, const char* call) {
    if (result == cudaSuccess || error != cudaSuccess) return;
    error = result;
    failed_call = call;
  }
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_QUEUE_H_
