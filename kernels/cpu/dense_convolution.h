// Dense convolutions of any kernel size as matrix products. A 1x1 convolution of stride 1
// reads its input in place; any other gathers the input pixels under the kernel into one row per
// output pixel (im2col). Each call blocks until its outputs are written.
#ifndef PUSHPULL_KERNELS_CPU_DENSE_CONVOLUTION_H_
#define PUSHPULL_KERNELS_CPU_DENSE_CONVOLUTION_H_

#include <cstdint>

#include "common/base/thread_pool.h"
#include "kernels/cpu/packed_numbers.h"
#include "kernels/operators.h"

namespace pushpull {

// P is the type of the packed operands (kernels/cpu/packed_numbers.h); the tensors have the type
// TensorOf<P>. With Bfloat16 the weights are rounded when they are packed, and the sums are of
// floats.

// The bytes of workspace that either direction needs at most with `threads` threads in the pool.
template <typename P>
int64_t DenseWorkspaceBytes(const ConvolutionShape& shape, int threads);

// As Operators::Convolution and ConvolutionBackward.
template <typename P>
void DenseForward(const ConvolutionShape& shape, const Lazy<TensorOf<P>>& x, const float* weights,
                  const float* bias, TensorOf<P>* y, const StatisticsOut<TensorOf<P>>& statistics,
                  const Workspace& workspace, ThreadPool* pool);
template <typename P>
void DenseBackward(const ConvolutionShape& shape, const Lazy<TensorOf<P>>& x, const float* weights,
                   const OutputGradient<TensorOf<P>>& dy, float* dweights, float* dbias,
                   const InputGradient<TensorOf<P>>& dx, const Workspace& workspace,
                   ThreadPool* pool);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_DENSE_CONVOLUTION_H_
