#include "kernels/cuda/channel_walk.cuh"
#include "kernels/cuda/elementwise.h"
#include "kernels/scalar_math.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// out = the value of x, kWidth neighbouring numbers at a time. The grid's stride is a multiple of
// the channels, so that a thread stays with its channels and computes their coefficients once, into
// registers; the threads beyond that multiple leave. Every number is read and written once: bound
// by device memory.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kWalkThreads)
    ValueKernel(LazyView<T> x, int64_t vectors, int channel_vectors, T* out) {
  const int threads = static_cast<int>(gridDim.x * blockDim.x);
  const int step = threads / channel_vectors * channel_vectors;
  const int first = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (first >= step) return;
  ScaleShift norm[kWidth];
  LoadCoefficients<kWidth>(x.norm, first % channel_vectors * kWidth, norm);
  for (int64_t v = first; v < vectors; v += step) {
    float value[kWidth];
    LoadValue<kWidth>(x, norm, v * kWidth, value);
    StoreWide<kWidth>(value, out + v * kWidth);
  }
}

// Dropout in a grid-stride loop, kWidth neighbouring numbers at a time. The mask is a hash of the
// entry's index, so it is not stored. The hash takes about ten 64-bit integer operations per entry,
// several instructions each, so instructions rather than device memory may be the bound.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kWalkThreads)
    DropKernel(const T* x, int64_t vectors, uint64_t threshold, float scale, const uint64_t* seed,
               uint64_t salt, T* y) {
  const uint64_t key = *seed ^ salt;
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t v = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; v < vectors; v += step) {
    float value[kWidth];
    LoadWide<kWidth>(x + v * kWidth, value);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      value[i] = HashIndex(key, v * kWidth + i) < threshold ? 0.0f : value[i] * scale;
    }
    StoreWide<kWidth>(value, y + v * kWidth);
  }
}

// Converts kWidth neighbouring numbers at a time in a grid-stride loop. Bound by device memory.
template <int kWidth, typename From, typename To>
__global__ void __launch_bounds__(kWalkThreads)
    ConvertKernel(const From* from, int64_t vectors, To* to) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t v = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; v < vectors; v += step) {
    float value[kWidth];
    LoadWide<kWidth>(from + v * kWidth, value);
    StoreWide<kWidth>(value, to + v * kWidth);
  }
}

template <typename From, typename To>
void Convert(Queue* queue, const char* name, int64_t size, const From* from, To* to) {
  if (CanWalkWide(size, {from, to})) {
    Launch(queue, name, {WalkBlocks(*queue, size / 8), kWalkThreads}, ConvertKernel<8, From, To>,
           from, size / 8, to);
  } else {
    Launch(queue, name, {WalkBlocks(*queue, size), kWalkThreads}, ConvertKernel<1, From, To>, from,
           size, to);
  }
}

// Writes zeros in a grid-stride loop. Bound by device memory.
__global__ void __launch_bounds__(kWalkThreads) ZeroKernel(int64_t size, float* out) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) {
    out[i] = 0.0f;
  }
}

// Adds in a grid-stride loop. Bound by device memory.
__global__ void __launch_bounds__(kWalkThreads)
    AddToKernel(int64_t size, const float* x, float* sum) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) {
    sum[i] += x[i];
  }
}

// The batch norms of one launch. They are parameters of the kernel, which CUDA limits to 4 KiB.
constexpr size_t kNormsPerLaunch = 80;
struct PushedNorms {
  struct Norm {
    int64_t channels;
    double factor;  // of the variance
    const float* mean;
    const float* variance;
    float* pushed_mean;
    float* pushed_variance;
  } norms[kNormsPerLaunch];
};
static_assert(sizeof(PushedNorms) <= 4096);

// Block b writes the statistics of batch norm b. There are at most a few thousand channels, so the
// launch itself is the cost; that is why one launch serves all batch norms.
__global__ void __launch_bounds__(kWalkThreads) MovingStatisticsKernel(PushedNorms all) {
  const PushedNorms::Norm& norm = all.norms[blockIdx.x];
  for (int64_t c = threadIdx.x; c < norm.channels; c += blockDim.x) {
    norm.pushed_mean[c] = norm.mean[c];
    norm.pushed_variance[c] = static_cast<float>(norm.variance[c] * norm.factor);
  }
}

// One thread per channel. As above, the launch is the cost; only inference needs this kernel.
__global__ void __launch_bounds__(kWalkThreads)
    CorrectStatisticsKernel(int64_t channels, double left, const float* mean, const float* variance,
                            float* corrected_mean, float* corrected_variance) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t c = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; c < channels; c += step) {
    const double own = variance[c] - left;
    corrected_mean[c] = static_cast<float>(mean[c] / (1.0 - left));
    // Written so that a NaN passes through.
    corrected_variance[c] = static_cast<float>((own < 0.0 ? 0.0 : own) / (1.0 - left));
  }
}

template <int kWidth, typename T>
void LaunchValue(Queue* queue, const LazyView<T>& x, const Shape& shape, T* out) {
  const int64_t vectors = shape.size() / kWidth;
  const int channel_vectors = static_cast<int>(shape.c / kWidth);
  if (vectors == 0) return;
  const unsigned blocks = ChannelWalkBlocks(*queue, vectors, channel_vectors);
  Launch(queue, "ApplyLazy", {blocks, kWalkThreads}, ValueKernel<kWidth, T>, x, vectors,
         channel_vectors, out);
}

}  // namespace

template <typename T>
void WriteValue(Queue* queue, const LazyView<T>& x, const Shape& shape, T* out) {
  if (CanWalkWide(shape.c, {x.raw, x.skip, x.applied, out})) {
    LaunchValue<8>(queue, x, shape, out);
  } else {
    LaunchValue<1>(queue, x, shape, out);
  }
}

template <typename T>
void ApplyLazy(Queue* queue, const Lazy<T>& x, T* out) {
  LazyView<T> computed = ViewOf(x);
  computed.applied = nullptr;
  WriteValue(queue, computed, x.shape, out);
}

template <typename T>
void DropEntries(Queue* queue, int64_t size, const T* x, double rate, const uint64_t* seed,
                 uint64_t salt, T* y) {
  const uint64_t threshold = DropoutThreshold(rate);
  const float scale = static_cast<float>(1.0 / (1.0 - rate));
  if (CanWalkWide(size, {x, y})) {
    Launch(queue, "Dropout", {WalkBlocks(*queue, size / 8), kWalkThreads}, DropKernel<8, T>, x,
           size / 8, threshold, scale, seed, salt, y);
  } else {
    Launch(queue, "Dropout", {WalkBlocks(*queue, size), kWalkThreads}, DropKernel<1, T>, x, size,
           threshold, scale, seed, salt, y);
  }
}

template <typename T>
void ConvertFromFloat(Queue* queue, int64_t size, const float* from, T* to) {
  Convert(queue, "ConvertFromFloat", size, from, to);
}

template <typename T>
void ConvertToFloat(Queue* queue, int64_t size, const T* from, float* to) {
  Convert(queue, "ConvertToFloat", size, from, to);
}

cudaError_t CodeForDevice() {
  cudaFuncAttributes attributes;
  const cudaError_t result =
      cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(&ZeroKernel));
  switch (result) {
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    // The driver has to compile the code for this device and cannot.
    case cudaErrorInvalidPtx:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorJitCompilationDisabled:
      cudaGetLastError();  // clears it
      return result;
    default:
      return cudaSuccess;  // another error is reported by what comes next
  }
}

void Zero(Queue* queue, int64_t size, float* out) {
  Launch(queue, "Zero", {WalkBlocks(*queue, size), kWalkThreads}, ZeroKernel, size, out);
}

void AddTo(Queue* queue, int64_t size, const float* x, float* sum) {
  Launch(queue, "AddTo", {WalkBlocks(*queue, size), kWalkThreads}, AddToKernel, size, x, sum);
}

void MovingStatistics(Queue* queue, absl::Span<const PushedStatistics<float>> norms) {
  while (!norms.empty()) {
    const auto now = norms.first(std::min(norms.size(), kNormsPerLaunch));
    PushedNorms arguments = {};
    for (size_t i = 0; i < now.size(); ++i) {
      const PushedStatistics<float>& norm = now[i];
      const double factor =
          static_cast<double>(norm.rows) / static_cast<double>(std::max<int64_t>(norm.rows - 1, 1));
      arguments.norms[i] = {norm.channels, factor,           norm.mean,
                            norm.variance, norm.pushed_mean, norm.pushed_variance};
    }
    Launch(queue, "MovingStatistics", {static_cast<unsigned>(now.size()), kWalkThreads},
           MovingStatisticsKernel, arguments);
    norms.remove_prefix(now.size());
  }
}

void CorrectStatistics(Queue* queue, int64_t channels, double left, const float* mean,
                       const float* variance, float* corrected_mean, float* corrected_variance) {
  Launch(queue, "CorrectStatistics", {WalkBlocks(*queue, channels), kWalkThreads},
         CorrectStatisticsKernel, channels, left, mean, variance, corrected_mean,
         corrected_variance);
}

#define PUSHPULL_INSTANTIATE(T)                                                                   \
  template void WriteValue<T>(Queue*, const LazyView<T>&, const Shape&, T*);                      \
  template void ApplyLazy<T>(Queue*, const Lazy<T>&, T*);                                         \
  template void DropEntries<T>(Queue*, int64_t, const T*, double, const uint64_t*, uint64_t, T*); \
  template void ConvertFromFloat<T>(Queue*, int64_t, const float*, T*);                           \
  template void ConvertToFloat<T>(Queue*, int64_t, const T*, float*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
