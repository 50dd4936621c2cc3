// The separate launchers of a dense convolution's backward pass, which convolution.cu combines.
// Arguments are as in convolution.h, except for those of convolution_operands.h. `parts` and
// `workspace` point to the caller's workspace. They return the sums that remain to be combined.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_GRADIENTS_H_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_GRADIENTS_H_

#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/convolution_operands.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/views.cuh"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// Writes dx.dz, which must not be null.
template <typename T>
NormGradientSums ConvolutionInputGradient(Queue* queue, const ConvolutionShape& shape,
                                          const Lazy<T>& x, const float* weights,
                                          const PlainGradientOf<T>& dy, const InputGradient<T>& dx,
                                          float* workspace);

// The output channels of a block of the weight gradient of a pointwise convolution.
inline constexpr int kWeightGradientColumns = 64;

// The number of splits that the sum over pixels is cut into (at most). Each split writes a whole
// matrix of partial sums to `parts`.
template <typename T>
int WeightGradientSplits(const Queue& queue, const ConvolutionShape& shape);

// `x` is what PlainValue returned. With a single split it writes dweights itself.
template <typename T>
PlainSums ConvolutionWeightGradient(Queue* queue, const ConvolutionShape& shape,
                                    const ValueSource<T>& x, const PlainGradientOf<T>& dy,
                                    float* dweights, float* parts);

// The number of partial sums of each bias gradient.
int BiasGradientParts(const Queue& queue, const ConvolutionShape& shape);

template <typename T>
PlainSums ConvolutionBiasGradient(Queue* queue, const ConvolutionShape& shape,
                                  const OutputGradient<T>& dy, float* dbias, float* parts);

// All of these that are wanted, and the kernel that combines their sums: `dweights`, `dbias` and
// dx.dz may be null. `workspace` has SeparateGradientsBytes. `value` is what PlainValue returned,
// and `gradient` what PlainGradient returned.
template <typename T>
int64_t SeparateGradientsBytes(const Queue& queue, const ConvolutionShape& shape);
template <typename T>
void SeparateGradients(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                       const float* weights, const OutputGradient<T>& dy,
                       const ValueSource<T>& value, const PlainGradientOf<T>& gradient,
                       float* dweights, float* dbias, const InputGradient<T>& dx, void* workspace);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_GRADIENTS_H_
