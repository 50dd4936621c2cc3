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

// As Operators::DepthwiseConvolution and DepthwiseConvolutionBackward.
void DepthwiseForward(const ConvolutionShape& shape, const Lazy<float>& x, const float* weights,
                      float* y, const StatisticsOut<float>& statistics, const Workspace& workspace,
                      ThreadPool* pool);
void DepthwiseBackward(const ConvolutionShape& shape, const Lazy<float>& x, const float* weights,
                       const OutputGradient<float>& dy, float* dweights,
                       const InputGradient<float>& dx, const Workspace& workspace,
                       ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_DEPTHWISE_CONVOLUTION_H_
