// The gradient of a convolution's weights, dw[q][o] = sum over output pixels m of value(m, q) *
// dy[m][o] with q = (tap, input channel), and of its biases. The pixels are cut into splits, one
// for each blockIdx.z, whose partial sums CombineGradients adds.
// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include <type_traits>

#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_plan.h"
#include "kernels/cuda/launch.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// The output channels of a block. Where a value is read once per tap, it had better be read for
// more of them at a time.
template <typename T>
PUSHPULL_HOST_DEVICE constexpr int ColumnsOf(Access access) {
  return std::is_same_v<T, Bfloat16> && access == Access::kVector ? 128 : kWeightGradientColumns;
}

// The blocks that run on a multiprocessor at once.
template <typename T>
constexpr int ResidentBlocks(Access access) {
  return std::is_same_v<T, float> || access == Access::kVector ? 1 : 2;
}

template <typename T>
struct WeightGradientArguments {
  ConvolutionGeometry geometry;
  ValueSource<T> source;
  GradientSource<T> gradient;
  int rows_per_split;  // a multiple of kChunk
  float* out;          // [splits][in_columns][out_c]
};

// Deals out the vectors of eight columns of a chunk to threads, so that a thread meets the same
// columns in every pixel. Neighbouring threads take neighbouring columns, or neighbouring pixels if
// kByPixels: then warps whose columns do not exist have nothing to do. That suits the few channels
// of images, whose tile is not half full.
template <int kColumnVectors, bool kByPixels>
struct ChunkPlace {
  static constexpr int kPixelsAtOnce = kTileThreads / kColumnVectors;
  static __device__ __forceinline__ int Column() {
    return (kByPixels ? threadIdx.x / kPixelsAtOnce : threadIdx.x % kColumnVectors) * 8;
  }
  static __device__ __forceinline__ int Pixel(int i) {
    return (kByPixels ? threadIdx.x % kPixelsAtOnce : threadIdx.x / kColumnVectors) +
           i * kPixelsAtOnce;
  }
};

// Brings chunks of the value to shared memory, [kChunk pixels][kTileRows columns q]. A tap has a
// multiple of 8 columns, and only pointwise convolutions form values here, as in RowLoader
// (convolution_rows.cuh), whose Fetch and Store these are like. A thread handles the same eight
// columns for all pixels, so it keeps their tap and coefficients in registers; in each chunk it
// takes two pixels. Columns that do not exist are not
// written.
template <typename T, Access kAccess>
class ValueColumns {
 public:
  static constexpr int kStride = kTileRows + kLinePadding<T>;
  using Place = ChunkPlace<kTileRows / 8, kAccess == Access::kPadded>;
  static constexpr int kPixels = kChunk / Place::kPixelsAtOnce;
  static constexpr bool kForms = kAccess == Access::kPointwise;
  struct Fetched {
    Raw8<T> raw[kPixels];
    Raw8<T> skip[kForms ? kPixels : 1];
    bool present[kForms ? kPixels : 1];
  };

  __device__ __forceinline__ ValueColumns(const ConvolutionGeometry& geometry,
                                          const ValueSource<T>& source)
      : g_(geometry), source_(source), x_(source.x) {
    const int column = blockIdx.x * kTileRows + Place::Column();
    const int tap = source.padded.Quotient(column, &channel_);
    kh_ = g_.by_kernel.Quotient(tap, &kw_);
    count_ = kh_ < g_.kernel ? min(g_.in_c - channel_, 8) : 0;
    KeepInRegister(&channel_);
    KeepInRegister(&kh_);
    KeepInRegister(&kw_);
    if constexpr (kForms) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const ScaleShift z =
            e < count_ ? NormCoefficients(x_.norm, channel_ + e) : ScaleShift{0.0f, 0.0f};
        k_[0][e] = z.scale;
        k_[1][e] = z.shift;
      }
    }
  }

  __device__ __forceinline__ Fetched Fetch(int first, int end) const {
    Fetched fetched;
    if constexpr (!kForms) {
      if (count_ == 0) return Fetched{};
    }
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int pixel = first + Place::Pixel(i);
      if constexpr (kForms) {
        fetched.present[i] = pixel < end && count_ > 0;
        if (!fetched.present[i]) continue;
        const int64_t offset = static_cast<int64_t>(pixel) * g_.in_c + channel_;
        fetched.raw[i] = LoadRaw8(x_.raw + offset);
        if (x_.skip != nullptr) fetched.skip[i] = LoadRaw8(x_.skip + offset);
      } else {
        fetched.raw[i] = Load(pixel, pixel < end);
      }
    }
    return fetched;
  }

  __device__ __forceinline__ void Store(const Fetched& fetched, T* tile) const {
    if constexpr (!kForms) {
      if (count_ == 0) return;
    }
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      T* const to = tile + Place::Pixel(i) * kStride + Place::Column();
      if constexpr (!kForms) {
        StoreRaw8(fetched.raw[i], to);
      } else if (source_.plain()) {
        StoreRaw8(fetched.present[i] ? fetched.raw[i] : Raw8<T>{}, to);
      } else {
        float values[8] = {};
        if (fetched.present[i]) source_.Form8(fetched.raw[i], fetched.skip[i], k_, values);
        Store8(values, to);
      }
    }
  }

 private:
  // Loads the value that the thread's tap reads for an output pixel, if that is present.
  __device__ __forceinline__ Raw8<T> Load(int pixel, bool present) const {
    int place, w, from_h, from_w;
    const int sample = g_.by_out_pixels.Quotient(pixel, &place);
    const int h = g_.by_out_w.Quotient(place, &w);
    const Start start = ForwardTaps::StartOf(g_, h, w);
    const bool found = ForwardTaps::Find(g_, start, kh_, kw_, &from_h, &from_w);
    if (!(found & present)) return Raw8<T>{};
    const int row = (sample * g_.in_h + from_h) * g_.in_w + from_w;
    const T* const from = x_.raw + static_cast<int64_t>(row) * g_.in_c + channel_;
    if constexpr (kAccess == Access::kPadded) return LoadRaw8(from, count_);
    return LoadRaw8(from);
  }

  const ConvolutionGeometry& g_;
  const ValueSource<T>& source_;
  const LazyView<T>& x_;
  int channel_, kh_, kw_;
  int count_;  // of the eight columns, those that exist
  float k_[ValueSource<T>::kCoefficients][8];
};

// Brings chunks of dy to shared memory, [kChunk pixels][kColumns]. A thread handles the same eight
// columns for all pixels. Over taps dy must be plain numbers, whose channels are a multiple of 8.
template <typename T, Access kAccess>
class GradientColumns {
 public:
  static constexpr int kColumns = ColumnsOf<T>(kAccess);
  static constexpr int kStride = kColumns + kLinePadding<T>;
  using Place = ChunkPlace<kColumns / 8, kAccess == Access::kPadded>;
  static constexpr int kPixels = kChunk / Place::kPixelsAtOnce;
  static constexpr bool kForms = kAccess != Access::kVector;
  struct Fetched {
    Raw8<T> dz[kPixels];
    Raw8<T> raw[kForms ? kPixels : 1];
    bool present[kForms ? kPixels : 1];
  };

  __device__ __forceinline__ explicit GradientColumns(const GradientSource<T>& source)
      : source_(source),
        column_(blockIdx.y * kColumns + Place::Column()),
        count_(max(min(source.channels - column_, 8), 0)) {
    if constexpr (kForms) {
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        const RawGradientCoefficients k = e < count_ ? GradientCoefficients(source.dy, column_ + e)
                                                     : RawGradientCoefficients{0.0f, 0.0f, 0.0f};
        k_[0][e] = k.dz_factor;
        k_[1][e] = k.raw_factor;
        k_[2][e] = k.offset;
      }
    }
  }

  __device__ __forceinline__ Fetched Fetch(int first, int end) const {
    Fetched fetched;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int pixel = first + Place::Pixel(i);
      const int64_t offset = static_cast<int64_t>(pixel) * source_.channels + column_;
      if constexpr (kForms) {
        fetched.present[i] = pixel < end && count_ > 0;
        if (!fetched.present[i]) continue;
        fetched.dz[i] = Read(source_.first() + offset);
        if (source_.second() != nullptr) fetched.raw[i] = Read(source_.second() + offset);
      } else {
        fetched.dz[i] = Raw8<T>{};
        if (pixel < end && count_ > 0) fetched.dz[i] = LoadRaw8(source_.first() + offset);
      }
    }
    return fetched;
  }

  __device__ __forceinline__ void Store(const Fetched& fetched, T* tile) const {
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      T* const to = tile + Place::Pixel(i) * kStride + Place::Column();
      if constexpr (!kForms) {
        StoreRaw8(fetched.dz[i], to);
      } else if (source_.plain()) {
        StoreRaw8(fetched.present[i] ? fetched.dz[i] : Raw8<T>{}, to);
      } else {
        float values[8] = {};
        if (fetched.present[i]) source_.Form8(fetched.dz[i], fetched.raw[i], k_, values);
        Store8(values, to);
      }
    }
  }

 private:
  __device__ __forceinline__ Raw8<T> Read(const T* from) const {
    if (source_.channels % 8 == 0) return LoadRaw8(from);
    return LoadRaw8(from, count_);
  }

  const GradientSource<T>& source_;
  const int column_, count_;
  float k_[GradientSource<T>::kCoefficients][8];
};

template <typename T>
PUSHPULL_HOST_DEVICE constexpr int WeightGradientSharedBytes(int columns) {
  return 2 * kChunk * (kTileRows + columns + 2 * kLinePadding<T>)*static_cast<int>(sizeof(T));
}

// The row of dw[in_columns][out_c] for column q of the value; -1 if there is none.
template <Access kAccess, typename T>
__device__ __forceinline__ int WeightRow(const WeightGradientArguments<T>& a, int q) {
  if constexpr (kAccess != Access::kPadded) return q < a.geometry.in_columns ? q : -1;
  int channel;
  const int row = a.source.padded.Quotient(q, &channel) * a.source.channels + channel;
  return channel < a.source.channels && row < a.geometry.in_columns ? row : -1;
}

// A block of 256 threads computes a tile of dw, 128 values of q (blockIdx.x) by 64 output channels,
// or 128 (blockIdx.y, ColumnsOf), summed over the pixels of one split (blockIdx.z). Both operands
// have the pixel as their slow index in memory and in shared memory; the matrix unit transposes the
// left one when it loads it (LoadMatricesTransposed), so nothing is copied twice.
//
//           values [pixels][128]        gradients [pixels][64]
//          .---------------.           .--------.
//          |               |           |        |
//    chunk |###############|     x     |########|     ->  dw tile [128][64], in registers
//    of 32 |               |           |        |
//          '---------------'           '--------'
//
// Shared memory holds two chunks of both operands (26 or 34 KiB for bfloat16), which alternate, so
// one barrier per chunk is enough; the next chunk is fetched into registers meanwhile. x is read
// once per tile of output channels, dy once per 128 values of q. With few tiles and many pixels the
// splits keep the device busy, at the price of partial sums. NOTES.md has the bounds.
template <typename T, Access kAccess>
__global__ void __launch_bounds__(kTileThreads, ResidentBlocks<T>(kAccess))
    ConvolutionWeightGradientKernel(WeightGradientArguments<T> a) {
  using Values = ValueColumns<T, kAccess>;
  using Gradients = GradientColumns<T, kAccess>;
  T* const value_tiles = reinterpret_cast<T*>(SharedBytes());
  T* const gradient_tiles = value_tiles + 2 * kChunk * Values::kStride;
  Values values(a.geometry, a.source);
  Gradients gradients(a.gradient);
  const int first = blockIdx.z * a.rows_per_split;
  const int end = min(first + a.rows_per_split, a.geometry.out_rows);
  constexpr int kColumns = Gradients::kColumns;
  TileMath<T, kColumns> math;
  math.Clear();
  // Columns that do not exist stay zeros, and their part of the tile is not computed.
  const float zeros[8] = {};
  constexpr int kVectors = WeightGradientSharedBytes<T>(kColumns) / 8 / static_cast<int>(sizeof(T));
  for (int i = threadIdx.x; i < kVectors; i += kTileThreads) Store8(zeros, value_tiles + 8 * i);
  __syncthreads();
  const int rows = a.geometry.Reduction(a.geometry.in_c) - blockIdx.x * kTileRows;
  const int columns = a.geometry.out_c - blockIdx.y * kColumns;
  typename Values::Fetched value = values.Fetch(first, end);
  typename Gradients::Fetched gradient = gradients.Fetch(first, end);
  int turn = 0;
  for (int row = first; row < end; row += kChunk, turn ^= 1) {
    T* const value_tile = value_tiles + turn * kChunk * Values::kStride;
    T* const gradient_tile = gradient_tiles + turn * kChunk * Gradients::kStride;
    values.Store(value, value_tile);
    gradients.Store(gradient, gradient_tile);
    __syncthreads();
    if (row + kChunk < end) {
      value = values.Fetch(row + kChunk, end);
      gradient = gradients.Fetch(row + kChunk, end);
    }
    if (math.Meets(rows, columns)) {
      math.template Multiply<MatrixLayout::kByColumn, MatrixLayout::kByRow>(
          value_tile, Values::kStride, gradient_tile, Gradients::kStride);
    }
  }
  float* const out =
      a.out + static_cast<int64_t>(blockIdx.z) * a.geometry.in_columns * a.geometry.out_c;
  math.ForEach([&](int r, int c, float sum) {
    const int q = blockIdx.x * kTileRows + r, o = blockIdx.y * kColumns + c;
    const int row = WeightRow<kAccess>(a, q);
    if (row >= 0 && o < a.geometry.out_c) {
      out[static_cast<int64_t>(row) * a.geometry.out_c + o] = sum;
    }
  });
}

template <typename T>
void LaunchWeightGradient(Queue* queue, Access access, int splits,
                          const WeightGradientArguments<T>& a) {
  const dim3 grid(CeilDivide(a.geometry.Reduction(a.geometry.in_c), kTileRows),
                  CeilDivide(a.geometry.out_c, ColumnsOf<T>(access)), splits);
  const LaunchShape shape = {
      grid, dim3(kTileThreads),
      static_cast<size_t>(WeightGradientSharedBytes<T>(ColumnsOf<T>(access)))};
  const char* const name = "convolution_weight_gradient";
  switch (access) {
    case Access::kPointwise:
      return Launch(queue, name, shape, ConvolutionWeightGradientKernel<T, Access::kPointwise>, a);
    case Access::kVector:
      return Launch(queue, name, shape, ConvolutionWeightGradientKernel<T, Access::kVector>, a);
    case Access::kPadded:
      return Launch(queue, name, shape, ConvolutionWeightGradientKernel<T, Access::kPadded>, a);
  }
}

constexpr int kBiasThreadsX = 32, kBiasThreadsY = 8;

// Sums dy over rows, for 32 channels (blockIdx.y) per block. A block has 8 x 32 threads, one
// channel each; it takes groups of 8 rows, blockIdx.x, blockIdx.x + gridDim.x, ..., and adds its 8
// rows of threads in order through shared memory, float [8][32]. It writes
// parts[blockIdx.x][channel]. Each element is read once with two to four operations: device memory
// is the bound.
template <typename T>
__global__ void ConvolutionBiasGradientKernel(GradientSource<T> source, int rows, float* parts) {
  float* const sums = reinterpret_cast<float*>(SharedBytes());
  const int channel = blockIdx.y * kBiasThreadsX + threadIdx.x;
  float sum = 0.0f;
  if (channel < source.channels) {
    const RawGradientCoefficients k = GradientCoefficients(source.dy, channel);
    for (int row = blockIdx.x * kBiasThreadsY + threadIdx.y; row < rows;
         row += gridDim.x * kBiasThreadsY) {
      const int64_t offset = static_cast<int64_t>(row) * source.channels + channel;
      const float raw = source.second() != nullptr ? ToFloat(source.second()[offset]) : 0.0f;
      sum += ToFloat(source.first()[offset]) * k.dz_factor + raw * k.raw_factor + k.offset;
    }
  }
  sums[threadIdx.y * kBiasThreadsX + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && channel < source.channels) {
    for (int y = 1; y < kBiasThreadsY; ++y) sum += sums[y * kBiasThreadsX + threadIdx.x];
    parts[static_cast<int64_t>(blockIdx.x) * source.channels + channel] = sum;
  }
}

}  // namespace

// Chooses the number of splits. The blocks run in waves of as many as fit on the device, each as
// long as its split. The last wave may be nearly empty; more splits make it fuller, but each costs
// a matrix of partial sums. So this takes the fewest splits that come within a twentieth of the
// shortest time.
template <typename T>
int WeightGradientSplits(const Queue& queue, const ConvolutionShape& shape) {
  const ConvolutionGeometry g(shape);
  const Access access = ChooseAccess(shape, g.in_c);
  const int64_t tiles = int64_t{CeilDivide(g.Reduction(g.in_c), kTileRows)} *
                        CeilDivide(g.out_c, ColumnsOf<T>(access));
  const int64_t at_once = int64_t{queue.multiprocessors} * ResidentBlocks<T>(access);
  constexpr int kWaves = 4;
  // A split has at least eight chunks, so that the partial sums stay small beside what it reads.
  const int most =
      std::max(1, std::min(CeilDivide(kWaves * at_once, tiles), g.out_rows / (8 * kChunk)));
  const auto time = [&](int splits) {
    return static_cast<double>(CeilDivide(tiles * splits, at_once)) / splits;
  };
  double shortest = time(1);
  for (int splits = 2; splits <= most; ++splits) shortest = std::min(shortest, time(splits));
  int splits = 1;
  while (time(splits) > 1.05 * shortest) ++splits;
  return splits;
}

template <typename T>
PlainSums ConvolutionWeightGradient(Queue* queue, const ConvolutionShape& shape,
                                    const LazyView<T>& x, const PlainGradientOf<T>& dy,
                                    float* dweights, float* parts) {
  const ConvolutionGeometry geometry(shape);
  const int wanted = WeightGradientSplits<T>(*queue, shape);
  const int rows_per_split = CeilDivide(CeilDivide(geometry.out_rows, wanted), kChunk) * kChunk;
  const int splits = CeilDivide(geometry.out_rows, rows_per_split);
  const WeightGradientArguments<T> arguments = {
      geometry,
      {x, geometry.in_c},
      {ViewOf(dy.gradient, geometry.out_rows), dy.channels},
      rows_per_split,
      splits > 1 ? parts : dweights};
  LaunchWeightGradient(queue, ChooseAccess(shape, geometry.in_c), splits, arguments);
  if (splits == 1) return {};
  return {parts, splits, shape.dense_weights(), dweights};
}

int BiasGradientParts(const Queue& queue, const ConvolutionShape& shape) {
  return std::min(CeilDivide(shape.out().rows(), 4 * kBiasThreadsY), 2 * queue.multiprocessors);
}

template <typename T>
PlainSums ConvolutionBiasGradient(Queue* queue, const ConvolutionShape& shape,
                                  const OutputGradient<T>& dy, float* dbias, float* parts) {
  const Shape out = shape.out();
  const int num_parts = BiasGradientParts(*queue, shape);
  const dim3 grid(num_parts, CeilDivide(out.c, kBiasThreadsX));
  const GradientSource<T> source = {ViewOf(dy, out.rows()), static_cast<int>(out.c)};
  Launch(queue, "convolution_bias_gradient",
         {grid, dim3(kBiasThreadsX, kBiasThreadsY), kBiasThreadsX * kBiasThreadsY * sizeof(float)},
         ConvolutionBiasGradientKernel<T>, source, static_cast<int>(out.rows()), parts);
  return {parts, num_parts, out.c, dbias};
}

#define PUSHPULL_INSTANTIATE(T)                                                                  \
  template int WeightGradientSplits<T>(const Queue&, const ConvolutionShape&);                   \
  template PlainSums ConvolutionWeightGradient<T>(Queue*, const ConvolutionShape&,               \
                                                  const LazyView<T>&, const PlainGradientOf<T>&, \
                                                  float*, float*);                               \
  template PlainSums ConvolutionBiasGradient<T>(Queue*, const ConvolutionShape&,                 \
                                                const OutputGradient<T>&, float*, float*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
