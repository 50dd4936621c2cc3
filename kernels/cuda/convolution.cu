// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/convolution.h"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_operands.h"
#include "kernels/cuda/convolution_plan.h"
#include "kernels/cuda/pointwise_backward.h"

namespace pushpull::PUSHPULL_CUDA {

namespace {

// The bytes after the plain operands that the input gradient needs, and the partial sums of the
// bias gradient.
template <typename T>
int64_t InputGradientBytes(const Queue& queue, const ConvolutionShape& shape) {
  return CoefficientBytes(shape) + PackedBytes<T>(shape) +
         GradientPartBytes(MaxProductBlocks(queue, shape.in.rows()), shape.in.c);
}
int64_t BiasPartBytes(const Queue& queue, const ConvolutionShape& shape) {
  return BiasGradientParts(queue, shape) * shape.out_channels * static_cast<int64_t>(sizeof(float));
}

}  // namespace

template <typename T>
int64_t SeparateGradientsBytes(const Queue& queue, const ConvolutionShape& shape) {
  return InputGradientBytes<T>(queue, shape) + BiasPartBytes(queue, shape) +
         WeightGradientSplits<T>(queue, shape) * shape.dense_weights() *
             static_cast<int64_t>(sizeof(float));
}

template <typename T>
void SeparateGradients(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                       const float* weights, const OutputGradient<T>& dy,
                       const ValueSource<T>& value, const PlainGradientOf<T>& gradient,
                       float* dweights, float* dbias, const InputGradient<T>& dx, void* workspace) {
  unsigned char* const input_memory = static_cast<unsigned char*>(workspace);
  unsigned char* const bias_memory = input_memory + InputGradientBytes<T>(*queue, shape);
  unsigned char* const weight_memory = bias_memory + BiasPartBytes(*queue, shape);
  // The weight gradient comes last, since its partial sums are the largest: when they are combined,
  // they are still in the L2 cache.
  GradientSums sums;
  if (dx.dz != nullptr) {
    sums.norm = ConvolutionInputGradient(queue, shape, x, weights, gradient, dx,
                                         reinterpret_cast<float*>(input_memory));
  }
  if (dbias != nullptr) {
    sums.biases =
        ConvolutionBiasGradient(queue, shape, dy, dbias, reinterpret_cast<float*>(bias_memory));
  }
  if (dweights != nullptr) {
    sums.weights = ConvolutionWeightGradient(queue, shape, value, gradient, dweights,
                                             reinterpret_cast<float*>(weight_memory));
  }
  CombineGradients(queue, sums);
}

// The plain operands come first. The memory after them serves the forward pass, the three kernels
// of the backward pass, whose partial sums are combined in the end, or the one kernel that replaces
// these, hence the maximum.
template <typename T>
int64_t ConvolutionWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape) {
  const Shape out = shape.out();
  const int64_t forward = CoefficientBytes(shape) + PackedBytes<T>(shape) +
                          StatisticsPartBytes(MaxProductBlocks(queue, out.rows()), out.c);
  const int64_t backward = SeparateGradientsBytes<T>(queue, shape);
  const int64_t fused =
      PointwiseBackwardPays(queue, shape) ? PointwiseBackwardWorkspaceBytes(queue, shape) : 0;
  return PlainValueBytes<T>(shape) + PlainGradientBytes<T>(shape) +
         std::max({forward, backward, fused});
}

template <typename T>
void ConvolutionBackward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                         const float* weights, const OutputGradient<T>& dy, float* dweights,
                         float* dbias, const InputGradient<T>& dx, void* workspace) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    if (dx.dz != nullptr && dbias == nullptr && PointwiseBackwardPays(*queue, shape)) {
      PointwiseBackward(queue, shape, x, weights, dy, dweights, dx, workspace);
      return;
    }
  }
  unsigned char* const memory = static_cast<unsigned char*>(workspace);
  const ValueSource<T> value = PlainValue(queue, shape, x, memory);
  unsigned char* const gradient_memory = memory + PlainValueBytes<T>(shape);
  const PlainGradientOf<T> gradient =
      PlainGradient(queue, shape, dy, dx.dz != nullptr, gradient_memory);
  SeparateGradients(queue, shape, x, weights, dy, value, gradient, dweights, dbias, dx,
                    gradient_memory + PlainGradientBytes<T>(shape));
}

#define PUSHPULL_INSTANTIATE(T)                                                                \
  template int64_t SeparateGradientsBytes<T>(const Queue&, const ConvolutionShape&);           \
  template void SeparateGradients<T>(Queue*, const ConvolutionShape&, const Lazy<T>&,          \
                                     const float*, const OutputGradient<T>&,                   \
                                     const ValueSource<T>&, const PlainGradientOf<T>&, float*, \
                                     float*, const InputGradient<T>&, void*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

template int64_t ConvolutionWorkspaceBytes<float>(const Queue&, const ConvolutionShape&);
template int64_t ConvolutionWorkspaceBytes<Bfloat16>(const Queue&, const ConvolutionShape&);
template void ConvolutionBackward<float>(Queue*, const ConvolutionShape&, const Lazy<float>&,
                                         const float*, const OutputGradient<float>&, float*, float*,
                                         const InputGradient<float>&, void*);
template void ConvolutionBackward<Bfloat16>(Queue*, const ConvolutionShape&, const Lazy<Bfloat16>&,
                                            const float*, const OutputGradient<Bfloat16>&, float*,
                                            float*, const InputGradient<Bfloat16>&, void*);

}  // namespace pushpull::PUSHPULL_CUDA
