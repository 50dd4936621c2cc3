// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include "kernels/cuda/channel_walk.cuh"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_operands.h"
#include "kernels/cuda/convolution_plan.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// out = dy, eight neighbouring numbers at a time, as ValueKernel does it (elementwise.cu). `raw`
// is null if dy does not depend on it. Every number is read and written once: bound by device
// memory.
template <typename T>
__global__ void __launch_bounds__(kWalkThreads)
    OutputGradientKernel(OutputGradientView<T> dy, const T* raw, int64_t vectors,
                         int channel_vectors, T* out) {
  const int threads = static_cast<int>(gridDim.x * blockDim.x);
  const int step = threads / channel_vectors * channel_vectors;
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (first >= step) return;
  RawGradientCoefficients k[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    k[i] = GradientCoefficients(dy, first % channel_vectors * 8 + i);
  }
  for (int64_t v = first; v < vectors; v += step) {
    float value[8], other[8] = {};
    Load8(dy.dz + v * 8, value);
    if (raw != nullptr) Load8(raw + v * 8, other);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      value[i] = fmaf(value[i], k[i].dz_factor, fmaf(other[i], k[i].raw_factor, k[i].offset));
    }
    Store8(value, out + v * 8);
  }
}

// Writes the elements that a source forms, of channels that are no multiple of 8, with zeros after
// those of each pixel. A thread writes eight neighbours, of which `row_vectors` make a pixel.
template <typename T, typename Source>
__global__ void __launch_bounds__(kWalkThreads)
    PaddedKernel(Source source, int64_t vectors, Divisor row_vectors, T* out) {
  const bool plain = source.plain();
  const T* const second = source.second();
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t v = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; v < vectors; v += step) {
    int place;
    const int64_t row = row_vectors.Quotient(static_cast<int>(v), &place);
    const int channel = place * 8, count = min(source.channels - channel, 8);
    const int64_t offset = row * source.channels + channel;
    Raw8<T> packed = LoadRaw8(source.first() + offset, count);
    if (!plain) {
      const Raw8<T> other = second != nullptr ? LoadRaw8(second + offset, count) : Raw8<T>{};
      float k[Source::kCoefficients][8], values[8];
      source.Coefficients8(channel, k);
      source.Form8(packed, other, k, values);
      packed = Pack8<T>(values);
    }
    StoreRaw8(packed, out + v * 8);
  }
}

template <typename T, typename Source>
void LaunchPadded(Queue* queue, const char* name, const Source& source, int64_t rows, T* out) {
  const int row_vectors = PaddedChannels(source.channels) / 8;
  const int64_t vectors = rows * row_vectors;
  Launch(queue, name, {WalkBlocks(*queue, vectors), kWalkThreads}, PaddedKernel<T, Source>, source,
         vectors, Divisor(row_vectors), out);
}

template <typename T>
void LaunchOutputGradient(Queue* queue, const OutputGradientView<T>& dy, const Shape& shape,
                          T* out) {
  const T* const raw = dy.norm.batch_statistics ? dy.raw : nullptr;
  const char* const name = "convolution_output_gradient";
  if (CanWalkWide(shape.c, {dy.dz, raw, out})) {
    const int64_t vectors = shape.size() / 8;
    const int channel_vectors = static_cast<int>(shape.c / 8);
    Launch(queue, name, {ChannelWalkBlocks(*queue, vectors, channel_vectors), kWalkThreads},
           OutputGradientKernel<T>, dy, raw, vectors, channel_vectors, out);
    return;
  }
  const GradientSource<T> source = {dy, static_cast<int>(shape.c)};
  LaunchPadded(queue, name, source, shape.rows(), out);
}

int64_t AlignedBytes(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// The value is read for kWeightGradientColumns output channels at once.
bool WritesValue(const ConvolutionShape& shape) {
  return ChooseAccess(shape) == Access::kTaps || shape.in.c % 8 != 0 ||
         CeilDivide(shape.out_channels, kWeightGradientColumns) >= kReadsThatPay;
}

// The input gradient reads dy at least once per kTileRows of its channels, and over taps it cannot
// form it.
bool WritesGradient(const ConvolutionShape& shape, bool input_gradient) {
  if (input_gradient && ChooseAccess(shape) == Access::kTaps) return true;
  int reads = WeightGradientReads(shape);
  if (input_gradient) reads += CeilDivide(shape.in.c, kTileRows);
  return shape.out_channels % 8 != 0 || reads >= kReadsThatPay;
}

}  // namespace

template <typename T>
int64_t PlainValueBytes(const ConvolutionShape& shape) {
  if (!WritesValue(shape)) return 0;
  return AlignedBytes(shape.in.rows() * PaddedChannels(static_cast<int>(shape.in.c)) *
                      static_cast<int64_t>(sizeof(T)));
}

template <typename T>
int64_t PlainGradientBytes(const ConvolutionShape& shape) {
  if (!WritesGradient(shape, /*input_gradient=*/true)) return 0;
  const Shape out = shape.out();
  return AlignedBytes(out.rows() * PaddedChannels(static_cast<int>(out.c)) *
                      static_cast<int64_t>(sizeof(T)));
}

template <typename T>
const T* FormValue(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x, void* place) {
  const LazyView<T> value = ValueView(x);
  if (ValueSource<T>{value, static_cast<int>(shape.in.c)}.plain()) return value.raw;
  T* const out = static_cast<T*>(place);
  WriteValue(queue, value, shape.in, out);
  return out;
}

template <typename T>
ValueSource<T> WritePlainValue(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                               void* place) {
  const int channels = static_cast<int>(shape.in.c), padded = PaddedChannels(channels);
  LazyView<T> plain;
  if (channels == padded) {
    plain.raw = FormValue(queue, shape, x, place);
  } else {
    T* const out = static_cast<T*>(place);
    const ValueSource<T> source = {ValueView(x), channels};
    LaunchPadded(queue, "convolution_value", source, shape.in.rows(), out);
    plain.raw = out;
  }
  return {plain, padded};
}

template <typename T>
ValueSource<T> PlainValue(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                          void* place) {
  if (!WritesValue(shape)) return {ValueView(x), static_cast<int>(shape.in.c)};
  return WritePlainValue(queue, shape, x, place);
}

template <typename T>
PlainGradientOf<T> FormGradient(Queue* queue, const ConvolutionShape& shape,
                                const OutputGradient<T>& dy, void* place) {
  const Shape out = shape.out();
  const int channels = static_cast<int>(out.c);
  if (dy.batch_norm == nullptr && out.c % 8 == 0) return {dy, channels};
  T* const to = static_cast<T*>(place);
  LaunchOutputGradient(queue, ViewOf(dy, out.rows()), out, to);
  PlainGradientOf<T> written;
  written.gradient.dz = to;
  written.channels = PaddedChannels(channels);
  return written;
}

template <typename T>
PlainGradientOf<T> PlainGradient(Queue* queue, const ConvolutionShape& shape,
                                 const OutputGradient<T>& dy, bool input_gradient, void* place) {
  if (WritesGradient(shape, input_gradient)) return FormGradient(queue, shape, dy, place);
  return {dy, static_cast<int>(shape.out_channels)};
}

#define PUSHPULL_INSTANTIATE(T)                                                                  \
  template int64_t PlainValueBytes<T>(const ConvolutionShape&);                                  \
  template int64_t PlainGradientBytes<T>(const ConvolutionShape&);                               \
  template ValueSource<T> PlainValue<T>(Queue*, const ConvolutionShape&, const Lazy<T>&, void*); \
  template ValueSource<T> WritePlainValue<T>(Queue*, const ConvolutionShape&, const Lazy<T>&,    \
                                             void*);                                             \
  template PlainGradientOf<T> PlainGradient<T>(Queue*, const ConvolutionShape&,                  \
                                               const OutputGradient<T>&, bool, void*);           \
  template const T* FormValue<T>(Queue*, const ConvolutionShape&, const Lazy<T>&, void*);        \
  template PlainGradientOf<T> FormGradient<T>(Queue*, const ConvolutionShape&,                   \
                                              const OutputGradient<T>&, void*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
