// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include "kernels/cuda/channel_walk.cuh"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_operands.h"
#include "kernels/cuda/convolution_plan.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// From so many readings on it pays to write an operand first.
constexpr int kReadsThatPay = 3;

// out = dy, kWidth neighbouring numbers at a time, as ValueKernel does it (elementwise.cu). `raw`
// is null if dy does not depend on it. Every number is read and written once: bound by device
// memory.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kWalkThreads)
    OutputGradientKernel(OutputGradientView<T> dy, const T* raw, int64_t vectors,
                         int channel_vectors, T* out) {
  const int threads = static_cast<int>(gridDim.x * blockDim.x);
  const int step = threads / channel_vectors * channel_vectors;
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (first >= step) return;
  RawGradientCoefficients k[kWidth];
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    k[i] = GradientCoefficients(dy, first % channel_vectors * kWidth + i);
  }
  for (int64_t v = first; v < vectors; v += step) {
    float value[kWidth], other[kWidth] = {};
    LoadWide<kWidth>(dy.dz + v * kWidth, value);
    if (raw != nullptr) LoadWide<kWidth>(raw + v * kWidth, other);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      value[i] = fmaf(value[i], k[i].dz_factor, fmaf(other[i], k[i].raw_factor, k[i].offset));
    }
    StoreWide<kWidth>(value, out + v * kWidth);
  }
}

template <int kWidth, typename T>
void LaunchOutputGradient(Queue* queue, const OutputGradientView<T>& dy, const Shape& shape,
                          T* out) {
  const int64_t vectors = shape.size() / kWidth;
  const int channel_vectors = static_cast<int>(shape.c / kWidth);
  const unsigned blocks = ChannelWalkBlocks(*queue, vectors, channel_vectors);
  Launch(queue, "convolution_output_gradient", {blocks, kWalkThreads},
         OutputGradientKernel<kWidth, T>, dy, dy.norm.batch_statistics ? dy.raw : nullptr, vectors,
         channel_vectors, out);
}

int64_t AlignedBytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Whether the kernels that read the value, or the input gradient's that reads dy, can form it.
bool FormsValue(const ConvolutionShape& shape) {
  return ChooseAccess(shape, static_cast<int>(shape.in.c)) == Access::kPointwise;
}
bool FormsGradient(const ConvolutionShape& shape) {
  return ChooseAccess(shape, static_cast<int>(shape.out_channels)) == Access::kPointwise;
}

bool WritesValue(const ConvolutionShape& shape, int group) {
  return !FormsValue(shape) || CeilDivide(shape.out_channels, group) >= kReadsThatPay;
}

// The weight gradient reads dy once per kTileRows columns of the value, and the input gradient at
// least once per kTileRows of its channels.
bool WritesGradient(const ConvolutionShape& shape, bool input_gradient) {
  const int64_t columns = int64_t{shape.kernel} * shape.kernel * shape.in.c;
  int reads = CeilDivide(columns, kTileRows);
  if (input_gradient) reads += CeilDivide(shape.in.c, kTileRows);
  return (input_gradient && !FormsGradient(shape)) || reads >= kReadsThatPay;
}

}  // namespace

template <typename T>
int64_t PlainValueBytes(const ConvolutionShape& shape) {
  if (!WritesValue(shape, kWeightGradientColumns)) return 0;
  return AlignedBytes(shape.in.size() * static_cast<int64_t>(sizeof(T)));
}

template <typename T>
int64_t PlainGradientBytes(const ConvolutionShape& shape) {
  if (!WritesGradient(shape, /*input_gradient=*/true)) return 0;
  return AlignedBytes(shape.out().size() * static_cast<int64_t>(sizeof(T)));
}

template <typename T>
LazyView<T> PlainValue(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x, int group,
                       void* place) {
  const LazyView<T> value = ValueView(x);
  if (!WritesValue(shape, group) || ValueSource<T>{value, static_cast<int>(shape.in.c)}.plain()) {
    return value;
  }
  LazyView<T> plain;
  T* const out = static_cast<T*>(place);
  WriteValue(queue, value, shape.in, out);
  plain.raw = out;
  return plain;
}

template <typename T>
OutputGradient<T> PlainGradient(Queue* queue, const ConvolutionShape& shape,
                                const OutputGradient<T>& dy, bool input_gradient, void* place) {
  if (dy.batch_norm == nullptr || !WritesGradient(shape, input_gradient)) return dy;
  const Shape out = shape.out();
  const OutputGradientView<T> view = ViewOf(dy, out.rows());
  OutputGradient<T> plain;
  T* const to = static_cast<T*>(place);
  if (CanWalkWide(out.c, {view.dz, view.raw, to})) {
    LaunchOutputGradient<8>(queue, view, out, to);
  } else {
    LaunchOutputGradient<1>(queue, view, out, to);
  }
  plain.dz = to;
  return plain;
}

#define PUSHPULL_INSTANTIATE(T)                                                                    \
  template int64_t PlainValueBytes<T>(const ConvolutionShape&);                                    \
  template int64_t PlainGradientBytes<T>(const ConvolutionShape&);                                 \
  template LazyView<T> PlainValue<T>(Queue*, const ConvolutionShape&, const Lazy<T>&, int, void*); \
  template OutputGradient<T> PlainGradient<T>(Queue*, const ConvolutionShape&,                     \
                                              const OutputGradient<T>&, bool, void*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
