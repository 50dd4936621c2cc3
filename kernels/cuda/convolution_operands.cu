// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include "kernels/cuda/channel_walk.cuh"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_operands.h"
#include "kernels/cuda/convolution_plan.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// out = dy, kWidth neighbouring numbers at a time, as ValueKernel does it (elementwise.cu). `raw`
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

// The same for channels that are no multiple of 8: eight neighbours of a row of `padded`. They are
// loaded together if dy has no batch norm, as in class predictors, else one by one.
template <typename T>
__global__ void __launch_bounds__(kWalkThreads)
    PaddedGradientKernel(OutputGradientView<T> dy, const T* raw, int64_t vectors, int channels,
                         Divisor row_vectors, T* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t v = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; v < vectors; v += step) {
    int first;
    const int64_t row = row_vectors.Quotient(static_cast<int>(v), &first);
    const int channel = first * 8, count = min(channels - channel, 8);
    const int64_t offset = row * channels + channel;
    Raw8<T> packed;
    if (dy.norm.gamma == nullptr) {
      packed = LoadRaw8(dy.dz + offset, count);
    } else {
      float values[8] = {};
      for (int e = 0; e < count; ++e) {
        const RawGradientCoefficients k = GradientCoefficients(dy, channel + e);
        const float other = raw != nullptr ? ToFloat(raw[offset + e]) : 0.0f;
        values[e] =
            fmaf(ToFloat(dy.dz[offset + e]), k.dz_factor, fmaf(other, k.raw_factor, k.offset));
      }
      packed = Pack8<T>(values);
    }
    StoreRaw8(packed, out + v * 8);
  }
}

// The value of x with zeros behind the channels of each pixel: eight neighbours of a row of
// `padded`. Plain numbers, as those of images, are loaded together.
template <typename T>
__global__ void __launch_bounds__(kWalkThreads)
    PaddedValueKernel(LazyView<T> x, bool plain, int64_t vectors, int channels, Divisor row_vectors,
                      T* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t v = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; v < vectors; v += step) {
    int first;
    const int64_t row = row_vectors.Quotient(static_cast<int>(v), &first);
    const int channel = first * 8, count = min(channels - channel, 8);
    const int64_t offset = row * channels + channel;
    Raw8<T> packed;
    if (plain) {
      packed = LoadRaw8(x.raw + offset, count);
    } else {
      float values[8] = {};
      for (int e = 0; e < count; ++e) {
        const ScaleShift k = NormCoefficients(x.norm, channel + e);
        values[e] = Clamp(ToFloat(x.raw[offset + e]) * k.scale + k.shift, x.bounds);
        if (x.skip != nullptr) values[e] += ToFloat(x.skip[offset + e]);
      }
      packed = Pack8<T>(values);
    }
    StoreRaw8(packed, out + v * 8);
  }
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
  const int channels = static_cast<int>(shape.c), row_vectors = PaddedChannels(channels) / 8;
  const int64_t vectors = shape.rows() * row_vectors;
  Launch(queue, name, {WalkBlocks(*queue, vectors), kWalkThreads}, PaddedGradientKernel<T>, dy, raw,
         vectors, channels, Divisor(row_vectors), out);
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
    const LazyView<T> value = ValueView(x);
    const int64_t vectors = shape.in.rows() * (padded / 8);
    T* const out = static_cast<T*>(place);
    Launch(queue, "convolution_value", {WalkBlocks(*queue, vectors), kWalkThreads},
           PaddedValueKernel<T>, value, ValueSource<T>{value, channels}.plain(), vectors, channels,
           Divisor(padded / 8), out);
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
