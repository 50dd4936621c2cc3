// Runs gathers (kernels/gather/gather.h) on the GPU. The call only queues a kernel. T is float or
// Bfloat16.
#ifndef PUSHPULL_KERNELS_CUDA_GATHER_H_
#define PUSHPULL_KERNELS_CUDA_GATHER_H_

#include "kernels/cuda/queue.h"
#include "kernels/gather/gather.h"

namespace pushpull::PUSHPULL_CUDA {

template <typename T>
void RunGather(Queue* queue, const Gather<T>& gather);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_GATHER_H_
