// Launchers of depthwise convolutions with kernels of 1 to 7. The kernels are in
// depthwise_forward.cu and depthwise_backward.cu. The calls only queue kernels. T is float or
// Bfloat16; formulas in kernels/operators.h.
#ifndef PUSHPULL_KERNELS_CUDA_DEPTHWISE_H_
#define PUSHPULL_KERNELS_CUDA_DEPTHWISE_H_

#include "kernels/cuda/queue.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// The bytes of workspace that either direction needs at most.
int64_t DepthwiseWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape);

template <typename T>
void DepthwiseForward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                      const float* weights, T* y, const StatisticsOut<T>& statistics,
                      void* workspace);

template <typename T>
void DepthwiseBackward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                       const float* weights, const OutputGradient<T>& dy, float* dweights,
                       const InputGradient<T>& dx, void* workspace);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_DEPTHWISE_H_
