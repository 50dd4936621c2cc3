// Launchers of dense convolutions of any kernel size, including pointwise convolutions and fully
// connected layers. They are matrix products whose left operand is formed on the fly (implicit
// GEMM). The calls only queue kernels. T is float or Bfloat16; formulas in kernels/operators.h.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_H_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_H_

#include "kernels/cuda/queue.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// The bytes of workspace that either direction needs at most.
template <typename T>
int64_t ConvolutionWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape);

template <typename T>
void ConvolutionForward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                        const float* weights, const float* bias, T* y,
                        const StatisticsOut<T>& statistics, void* workspace);

template <typename T>
void ConvolutionBackward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                         const float* weights, const OutputGradient<T>& dy, float* dweights,
                         float* dbias, const InputGradient<T>& dx, void* workspace);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_H_
