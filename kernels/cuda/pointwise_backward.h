// Both gradients of a pointwise convolution in one kernel, so that the gradient of the output, the
// output and the input are read once. For bfloat16 and large maps with few channels, whose whole
// matrix of weight gradients a block can keep in registers.
#ifndef PUSHPULL_KERNELS_CUDA_POINTWISE_BACKWARD_H_
#define PUSHPULL_KERNELS_CUDA_POINTWISE_BACKWARD_H_

#include "kernels/cuda/queue.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// Whether the kernel takes this convolution and moves fewer bytes than the two separate ones.
bool PointwiseBackwardPays(const Queue& queue, const ConvolutionShape& shape);

int64_t PointwiseBackwardWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape);

// As ConvolutionBackward without biases; dx is wanted.
void PointwiseBackward(Queue* queue, const ConvolutionShape& shape, const Lazy<Bfloat16>& x,
                       const float* weights, const OutputGradient<Bfloat16>& dy, float* dweights,
                       const InputGradient<Bfloat16>& dx, void* workspace);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_POINTWISE_BACKWARD_H_
