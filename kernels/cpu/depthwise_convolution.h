// Depthwise convolutions with kernels of 1 to 7, vectorised over channels. A task handles a few
// samples and a slab of channels: it computes their lazy input once into its cache and slides
// the kernel over it there. Each call blocks until its outputs are written.
#ifndef PUSHPULL_KERNELS_CPU_DEPTHWISE_CONVOLUTION_H_
#define PUSHPULL_KERNELS_CPU_DEPTHWISE_CONVOLUTION_H_

#include <cstdint>

#include "common/base/thread_pool.h"
#include "kernels/operators.h"

namespace pushpull {

// The bytes of workspace for `threads` threads in the pool.
int64_t DepthwiseForwardWorkspaceBytes(const ConvolutionShape& shape, int threads);
int64_t DepthwiseBackwardWorkspaceBytes(const ConvolutionShape& shape, int threads);

// As Operators::DepthwiseConvolution and DepthwiseConvolutionBackward. T, the type of the tensors,
// is float or Bfloat16; what is in the cache, and all arithmetic, is in floats.
template <typename T>
void DepthwiseForward(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights, T* y,
                      const StatisticsOut<T>& statistics, const Workspace& workspace,
                      ThreadPool* pool);
template <typename T>
void DepthwiseBackward(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
                       const OutputGradient<T>& dy, float* dweights, const InputGradient<T>& dx,
                       const Workspace& workspace, ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_DEPTHWISE_CONVOLUTION_H_
