// The launcher of a kernel that computes both gradients of a pointwise convolution, so that dz, the
// raw output and the input are read once instead of twice. It is for Bfloat16 and for large maps
// with few channels: a block keeps the whole matrix of weight gradients in registers.
#ifndef PUSHPULL_KERNELS_CUDA_POINTWISE_BACKWARD_H_
#define PUSHPULL_KERNELS_CUDA_POINTWISE_BACKWARD_H_

#include "kernels/cuda/queue.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// Whether the kernel can handle this shape and moves clearly fewer bytes than the two separate
// kernels.
bool PointwiseBackwardPays(const Queue& queue, const ConvolutionShape& shape);

int64_t PointwiseBackwardWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape);

// As ConvolutionBackward without biases. dx.dz must not be null.
void PointwiseBackward(Queue* queue, const ConvolutionShape& shape, const Lazy<Bfloat16>& x,
                       const float* weights, const OutputGradient<Bfloat16>& dy, float* dweights,
                       const InputGradient<Bfloat16>& dx, void* workspace);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_POINTWISE_BACKWARD_H_
