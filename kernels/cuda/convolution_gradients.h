// The parts of a dense convolution's backward; convolution.cc puts them together. Arguments as in
// convolution.h; `parts` and `workspace` are floats of the
// workspace.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_GRADIENTS_H_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_GRADIENTS_H_

#include "kernels/cuda/queue.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

template <typename T>
void ConvolutionInputGradient(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                              const float* weights, const OutputGradient<T>& dy,
                              const InputGradient<T>& dx, float* workspace);

// How often the sum over pixels is cut; each cut gives a whole matrix of partial sums.
int WeightGradientSplits(const Queue& queue, const ConvolutionShape& shape);

template <typename T>
void ConvolutionWeightGradient(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                               const OutputGradient<T>& dy, float* dweights, float* parts);

int BiasGradientParts(const Queue& queue, const ConvolutionShape& shape);

template <typename T>
void ConvolutionBiasGradient(Queue* queue, const ConvolutionShape& shape,
                             const OutputGradient<T>& dy, float* dbias, float* parts);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_GRADIENTS_H_
