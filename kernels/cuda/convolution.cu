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

// The plain operands come first. The kernels of one call run one after the other and reuse the
// memory behind them, hence the maximum.
template <typename T>
int64_t ConvolutionWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape) {
  constexpr int64_t kFloat = sizeof(float);
  const Shape out = shape.out();
  const int64_t statistics = StatisticsPartBytes(MaxProductBlocks(queue, out.rows()), out.c);
  const int64_t norms = GradientPartBytes(MaxProductBlocks(queue, shape.in.rows()), shape.in.c);
  const int64_t weights = WeightGradientSplits<T>(queue, shape) * shape.dense_weights() * kFloat;
  const int64_t biases = BiasGradientParts(queue, shape) * out.c * kFloat;
  const int64_t fused =
      PointwiseBackwardPays(queue, shape) ? PointwiseBackwardWorkspaceBytes(queue, shape) : 0;
  const int64_t shared = CoefficientBytes(shape) + PackedBytes<T>(shape);
  return PlainValueBytes<T>(shape) + PlainGradientBytes<T>(shape) +
         std::max({shared + statistics, shared + norms, weights, biases, fused});
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
  const LazyView<T> value = PlainValue(queue, shape, x, kWeightGradientColumns, memory);
  unsigned char* const gradient_memory = memory + PlainValueBytes<T>(shape);
  const PlainGradientOf<T> gradient =
      PlainGradient(queue, shape, dy, dx.dz != nullptr, gradient_memory);
  float* const parts = reinterpret_cast<float*>(gradient_memory + PlainGradientBytes<T>(shape));
  // The input gradient comes last, since it is the one that may overwrite an input: dx.dz may be
  // the same tensor as dx.add.
  ConvolutionWeightGradient(queue, shape, value, gradient, dweights, parts);
  if (dbias != nullptr) ConvolutionBiasGradient(queue, shape, dy, dbias, parts);
  if (dx.dz != nullptr) ConvolutionInputGradient(queue, shape, x, weights, gradient, dx, parts);
}

template int64_t ConvolutionWorkspaceBytes<float>(const Queue&, const ConvolutionShape&);
template int64_t ConvolutionWorkspaceBytes<Bfloat16>(const Queue&, const ConvolutionShape&);
template void ConvolutionBackward<float>(Queue*, const ConvolutionShape&, const Lazy<float>&,
                                         const float*, const OutputGradient<float>&, float*, float*,
                                         const InputGradient<float>&, void*);
template void ConvolutionBackward<Bfloat16>(Queue*, const ConvolutionShape&, const Lazy<Bfloat16>&,
                                            const float*, const OutputGradient<Bfloat16>&, float*,
                                            float*, const InputGradient<Bfloat16>&, void*);

}  // namespace pushpull::PUSHPULL_CUDA
