// The gradient of a convolution's weights, dw[q][o] = sum over output pixels m of value(m, q) *
// dy[m][o] with q = (tap, input channel), and of its biases. The pixels are cut into splits, one
// for each blockIdx.z, whose partial sums CombineGradients adds.
// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include <type_traits>

#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/convolution_gradients.h"
#include "kernels/cuda/convolution_plan.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/raw_ring.cuh"
#include "kernels/cuda/weight_gradient_operands.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

WeightGradientKind KindOf(const ConvolutionShape& shape) {
  if (ChooseAccess(shape) == Access::kPointwise) return WeightGradientKind::kPointwise;
  return WeightGradientReads(shape) < kReadsThatPay ? WeightGradientKind::kFewTaps
                                                    : WeightGradientKind::kTaps;
}

// The output channels of a block. Where a value is read once per tap, it had better be read for
// more of them at a time.
template <typename T>
PUSHPULL_HOST_DEVICE constexpr int ColumnsOf(WeightGradientKind kind) {
  return std::is_same_v<T, Bfloat16> && kind == WeightGradientKind::kTaps ? 128
                                                                          : kWeightGradientColumns;
}

// The blocks that run on a multiprocessor at once.
template <typename T>
constexpr int ResidentBlocks(WeightGradientKind kind) {
  return std::is_same_v<T, float> || kind == WeightGradientKind::kTaps ? 1 : 2;
}

template <typename T>
struct WeightGradientArguments {
  ConvolutionGeometry geometry;
  ValueSource<T> source;
  GradientSource<T> gradient;
  int ring_slots;
  int rows_per_split;  // a multiple of kChunk
  float* out;          // [splits][in_columns][out_c]
};

template <typename T, WeightGradientKind kKind>
using ValueLoader = ChunkLoader<
    T,
    ValueColumns<T, kKind == WeightGradientKind::kPointwise ? Access::kPointwise : Access::kTaps>,
    kKind == WeightGradientKind::kPointwise>;
template <typename T, WeightGradientKind kKind>
using GradientLoader =
    ChunkLoader<T, GradientColumns<T, ColumnsOf<T>(kKind)>, kKind != WeightGradientKind::kTaps>;

// The chunks of both operands for which there is room. Bfloat16 needs one more, since copies run
// while a chunk is multiplied.
template <typename T>
inline constexpr int kTiles = sizeof(T) == 2 ? 3 : 2;
template <typename T, WeightGradientKind kKind>
inline constexpr int kAllTilesBytes = kTiles<T>*(ValueLoader<T, kKind>::kTileBytes +
                                                 GradientLoader<T, kKind>::kTileBytes);

// The row of dw[in_columns][out_c] for column q of the value; -1 if there is none.
template <typename T>
__device__ __forceinline__ int WeightRow(const WeightGradientArguments<T>& a, int q) {
  const int channels = a.geometry.in_c;
  int channel;
  const int row = a.source.padded.Quotient(q, &channel) * channels + channel;
  return channel < channels && row < a.geometry.in_columns ? row : -1;
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
// Shared memory holds some chunks of both operands (kAllTilesBytes: 39 to 51 KiB for Bfloat16),
// which alternate, so one barrier per chunk is enough, and in Bfloat16 the ring of raw numbers (up
// to 48 KiB). x is read once per tile of output channels, dy once per 128 values of q. With few
// tiles and many pixels the splits keep the device busy, at the price of partial sums. NOTES.md has
// the bounds.
template <typename T, WeightGradientKind kKind>
__global__ void __launch_bounds__(kTileThreads, ResidentBlocks<T>(kKind))
    ConvolutionWeightGradientKernel(WeightGradientArguments<T> a) {
  using Values = ValueLoader<T, kKind>;
  using Gradients = GradientLoader<T, kKind>;
  unsigned char* const shared = SharedBytes();
  const auto value_tile = [&](int tile) {
    return reinterpret_cast<T*>(shared + tile * Values::kTileBytes);
  };
  const auto gradient_tile = [&](int tile) {
    return reinterpret_cast<T*>(shared + kTiles<T> * Values::kTileBytes +
                                tile * Gradients::kTileBytes);
  };
  const Values values(a.geometry, a.source);
  const Gradients gradients(a.geometry, a.gradient);
  const int first = blockIdx.z * a.rows_per_split;
  const int end = min(first + a.rows_per_split, a.geometry.out_rows);
  constexpr int kColumns = ColumnsOf<T>(kKind);
  TileMath<T, kColumns> math;
  math.Clear();
  // Columns that do not exist stay zeros, and their part of the tile is not computed.
  const float zeros[8] = {};
  constexpr int kVectors = kAllTilesBytes<T, kKind> / 8 / static_cast<int>(sizeof(T));
  for (int i = threadIdx.x; i < kVectors; i += kTileThreads) Store8(zeros, value_tile(0) + 8 * i);
  __syncthreads();
  const int rows = a.geometry.Reduction(a.geometry.in_c) - blockIdx.x * kTileRows;
  const int columns = a.geometry.out_c - blockIdx.y * kColumns;
  const auto multiply = [&](int tile) {
    if (!math.Meets(rows, columns)) return;
    math.template Multiply<MatrixLayout::kByColumn, MatrixLayout::kByRow>(
        value_tile(tile), Values::kStride, gradient_tile(tile), Gradients::kStride);
  };
  if constexpr (std::is_same_v<T, Bfloat16>) {
    // Chunk c: wait until its numbers are there; form the elements that are not plain; barrier;
    // start the copies of the chunk that is as far ahead as the ring has slots; multiply c. After
    // the barrier chunk c - 1 has been multiplied, whose tile those copies may take.
    const int value_vectors = Values::RingVectors(a.source);
    const RawRing ring(shared + kAllTilesBytes<T, kKind>, a.ring_slots,
                       value_vectors + Gradients::RingVectors(a.gradient));
    const auto start = [&](int row, int slot, int tile) {
      if (row < end) {
        values.Start(row, end, ring, slot, 0, value_tile(tile));
        gradients.Start(row, end, ring, slot, value_vectors, gradient_tile(tile));
      }
      CloseCopyGroup();
    };
    const int ahead = ring.slots();
    for (int slot = 0; slot < ahead; ++slot) start(first + slot * kChunk, slot, slot);
    int tile = 0, slot = 0;
    for (int row = first; row < end; row += kChunk) {
      ring.Wait();
      values.StoreRaw(ring, slot, 0, row, end, value_tile(tile));
      gradients.StoreRaw(ring, slot, value_vectors, row, end, gradient_tile(tile));
      __syncthreads();
      start(row + ahead * kChunk, slot, (tile + ahead) % kTiles<T>);
      multiply(tile);
      slot = ring.After(slot);
      tile = (tile + 1) % kTiles<T>;
    }
  } else {
    auto value = values.Fetch(first, end);
    auto gradient = gradients.Fetch(first, end);
    int tile = 0;
    for (int row = first; row < end; row += kChunk, tile ^= 1) {
      values.Store(value, value_tile(tile));
      gradients.Store(gradient, gradient_tile(tile));
      __syncthreads();
      if (row + kChunk < end) {
        value = values.Fetch(row + kChunk, end);
        gradient = gradients.Fetch(row + kChunk, end);
      }
      multiply(tile);
    }
  }
  float* const out =
      a.out + static_cast<int64_t>(blockIdx.z) * a.geometry.in_columns * a.geometry.out_c;
  math.ForEach([&](int r, int c, float sum) {
    const int q = blockIdx.x * kTileRows + r, o = blockIdx.y * kColumns + c;
    const int row = WeightRow(a, q);
    if (row >= 0 && o < a.geometry.out_c) {
      out[static_cast<int64_t>(row) * a.geometry.out_c + o] = sum;
    }
  });
}

template <typename T, WeightGradientKind kKind>
void LaunchKind(Queue* queue, int splits, const WeightGradientArguments<T>& a) {
  const dim3 grid(CeilDivide(a.geometry.Reduction(a.geometry.in_c), kTileRows),
                  CeilDivide(a.geometry.out_c, ColumnsOf<T>(kKind)), splits);
  const int vectors = ValueLoader<T, kKind>::RingVectors(a.source) +
                      GradientLoader<T, kKind>::RingVectors(a.gradient);
  const int ring = std::is_same_v<T, Bfloat16> ? a.ring_slots * RingSlotBytes(vectors) : 0;
  const LaunchShape shape = {grid, dim3(kTileThreads),
                             static_cast<size_t>(kAllTilesBytes<T, kKind> + ring)};
  Launch(queue, "convolution_weight_gradient", shape, ConvolutionWeightGradientKernel<T, kKind>, a);
}

template <typename T>
void LaunchWeightGradient(Queue* queue, WeightGradientKind kind, int splits,
                          const WeightGradientArguments<T>& a) {
  switch (kind) {
    case WeightGradientKind::kPointwise:
      return LaunchKind<T, WeightGradientKind::kPointwise>(queue, splits, a);
    case WeightGradientKind::kFewTaps:
      return LaunchKind<T, WeightGradientKind::kFewTaps>(queue, splits, a);
    case WeightGradientKind::kTaps:
      return LaunchKind<T, WeightGradientKind::kTaps>(queue, splits, a);
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
  const WeightGradientKind kind = KindOf(shape);
  const int64_t tiles =
      int64_t{WeightGradientReads(shape)} * CeilDivide(g.out_c, ColumnsOf<T>(kind));
  const int64_t at_once = int64_t{queue.multiprocessors} * ResidentBlocks<T>(kind);
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
                                    const ValueSource<T>& x, const PlainGradientOf<T>& dy,
                                    float* dweights, float* parts) {
  const ConvolutionGeometry geometry(shape);
  const int wanted = WeightGradientSplits<T>(*queue, shape);
  const int rows_per_split = CeilDivide(CeilDivide(geometry.out_rows, wanted), kChunk) * kChunk;
  const int splits = CeilDivide(geometry.out_rows, rows_per_split);
  const WeightGradientArguments<T> arguments = {
      geometry,
      x,
      {ViewOf(dy.gradient, geometry.out_rows), dy.channels},
      RingSlots(*queue),
      rows_per_split,
      splits > 1 ? parts : dweights};
  LaunchWeightGradient(queue, KindOf(shape), splits, arguments);
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

#define PUSHPULL_INSTANTIATE(T)                                                               \
  template int WeightGradientSplits<T>(const Queue&, const ConvolutionShape&);                \
  template PlainSums ConvolutionWeightGradient<T>(Queue*, const ConvolutionShape&,            \
                                                  const ValueSource<T>&,                      \
                                                  const PlainGradientOf<T>&, float*, float*); \
  template PlainSums ConvolutionBiasGradient<T>(Queue*, const ConvolutionShape&,              \
                                                const OutputGradient<T>&, float*, float*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
