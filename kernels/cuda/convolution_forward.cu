// y = convolution(value(x), weights) + bias, with the statistics of y.
// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include "kernels/cuda/convolution.h"
#include "kernels/cuda/convolution_operands.h"
#include "kernels/cuda/convolution_plan.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/statistics_sums.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// An epilogue of FinishTile: stores rows of y and sums their distances, and squared distances,
// from a pivot per column, so that a large mean costs no precision. The pivot is the column's value
// in the first row of the block.
template <typename T>
struct OutputEpilogue {
  T* y;
  const float* bias;
  int columns;
  int first_column;
  float* pivots;  // in shared memory; null: no statistics

  __device__ __forceinline__ float Value(float sum, int column) const {
    return Rounded<T>(bias != nullptr ? sum + bias[column] : sum);
  }
  __device__ __forceinline__ bool WantsFirstRow() const { return pivots != nullptr; }
  // Notes a number of the block's first row.
  __device__ __forceinline__ void Begin(float sum, int n) const {
    const int column = first_column + n;
    if (column < columns) pivots[n] = Value(sum, column);
  }

  static constexpr int kUnroll = 1;  // of the loop over rows, to save registers

  // What a thread needs for eight neighbouring columns, in registers.
  struct Columns {
    float pivot[8];
  };

  __device__ __forceinline__ EpilogueCase which() const {
    if (columns % 8 != 0) return EpilogueCase::kAny;
    const bool rare = bias != nullptr || pivots == nullptr;
    return rare ? EpilogueCase::kVectorsMore : EpilogueCase::kVectors;
  }
  // The place of a number in y, which FinishVector and Finish take.
  __device__ __forceinline__ int64_t OffsetOf(int row, int n) const {
    return static_cast<int64_t>(row) * columns + first_column + n;
  }
  __device__ __forceinline__ Columns Load(int n) const {
    Columns k = {};
    if (pivots != nullptr) Load8(pivots + n, k.pivot);
    return k;
  }

  template <EpilogueCase kCase>
  __device__ __forceinline__ void FinishVector(int64_t offset, int n, const Columns& k,
                                               float values[8], float partial[2][8]) const {
    const int column = first_column + n;
    if (column >= columns) return;
    if constexpr (kCase == EpilogueCase::kVectorsMore) {
      if (bias != nullptr) {
#pragma unroll
        for (int e = 0; e < 8; ++e) values[e] += bias[column + e];
      }
    }
    StoreToDevice8(Round8<T>(values), y + offset);
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      const float distance = values[e] - k.pivot[e];
      partial[0][e] += distance;
      partial[1][e] += distance * distance;
    }
  }

  __device__ __forceinline__ void Finish(int64_t offset, int n, float values[8],
                                         float partial[2][8]) const {
    const int column = first_column + n;
    const int count = min(columns - column, 8);
    T* const out = y + offset;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e >= count) continue;
      values[e] = Value(values[e], column + e);
      out[e] = FromFloat<T>(values[e]);
      if (pivots == nullptr) continue;
      const float distance = values[e] - pivots[n + e];
      partial[0][e] += distance;
      partial[1][e] += distance * distance;
    }
  }
};

template <typename T>
struct ForwardArguments {
  ConvolutionGeometry geometry;
  ProductPlan plan;
  ValueSource<T> source;
  PanelWeights weights;
  const float* bias;
  T* y;
  StatisticsSums statistics;
  // Device memory for the coefficients and the weights, if they are not in shared memory.
  float* coefficients;
  T* packed;
};

// y = value(x) * weights as an implicit GEMM. A block of 256 threads owns kColumns output channels
// (blockIdx.y) and tiles_per_block row tiles of 128 output pixels (blockIdx.x). It goes through the
// row tiles one by one and through the reduction, (tap, input channel), in chunks of 32.
//
//                              panel of weights [reduction][kColumns], in shared memory: all of it
//                             .----------.      if it fits, else the current and the next chunk
//                             |----------|
//         reduction           |##########|  chunk of 32
//       .----.---.------.     '----------'
//       |    |###|      |     .----------.
//  128  |    |###|      |     | sums     |  in registers (TileMath)
//  rows |    |###|      |     |          |
//       '----'---'------'     '----------'
//             chunk: shared memory, two buffers
//
// - Apply on load, if the convolution is pointwise: RowLoader fetches raw numbers of the next chunk
//   into registers while the current one is multiplied, then forms the values (batch norm,
//   activation, skip) and stores them to shared memory. In Bfloat16 the raw numbers come through a
//   ring (MultiplyRingChunks). Otherwise x is plain numbers, which PlainValue has written
//   (convolution_operands.h), and in Bfloat16 they are copied to three buffers beside the threads
//   (MultiplyCopiedChunks). The two buffers alternate, so one barrier per chunk is enough: a
//   buffer is written again only after the barrier that follows the multiplication of its chunk.
// - Epilogue: each warp takes its sums through shared memory to y, 16 rows of 32 columns at a time,
//   so that stores are 16 bytes wide. It waits for no other warp. The statistics are summed on the
//   way, from the rounded numbers, in registers for all row tiles.
// - Shared memory: row tiles, staged sums, panel, sums[8 warps][2][kColumns], pivots, coefficients.
//   See ProductMemory.
//
// Each column group reads x again, so wide tiles read less. Tensor cores are far from their bound;
// device memory, the unit of shared memory and the issue of instructions are not (NOTES.md).
template <typename T, int kColumns, Access kAccess>
__global__ void __launch_bounds__(kTileThreads,
                                  BlocksPerMultiprocessor(Pass::kForward, kColumns, kAccess))
    ConvolutionForwardKernel(ForwardArguments<T> a) {
  using Memory = ProductMemory<T, kColumns, MatrixLayout::kByRow, kRowTiles<T, kAccess>>;
  unsigned char* const shared = SharedBytes();
  const int reduction = a.geometry.Reduction(a.source.channels), columns = a.geometry.out_c;
  const int first_column = blockIdx.y * kColumns;
  T* const panel_memory = reinterpret_cast<T*>(shared + Memory::kTilesBytes + a.plan.ring_bytes);
  float* const sums = reinterpret_cast<float*>(reinterpret_cast<unsigned char*>(panel_memory) +
                                               Memory::PanelBytes(reduction, a.plan.resident));
  float* const pivots = sums + Memory::kSumsBytes / sizeof(float);
  float* const shared_coefficients = pivots + kColumns;
  using Rows = RowLoader<T, kAccess, ValueSource<T>, ForwardTaps>;
  if (Rows::kForms && a.plan.shares_coefficients) a.source.FillCoefficients(shared_coefficients);
  const float* const coefficients =
      a.plan.shares_coefficients ? shared_coefficients : a.coefficients;

  Rows rows(a.geometry, a.source, coefficients, a.plan.shares_coefficients);
  Panel<T, kColumns, MatrixLayout::kByRow> panel(a.weights, a.packed, blockIdx.y, a.plan.resident,
                                                 panel_memory);
  OutputEpilogue<T> epilogue = {a.y, a.bias, columns, first_column,
                                a.statistics.parts != nullptr ? pivots : nullptr};
  MultiplyTiles<T, kColumns>(a.plan, rows, panel, epilogue, shared, sums);

  if (a.statistics.parts == nullptr) return;
  const int n = threadIdx.x;
  if (n < kColumns && first_column + n < columns) {
    const int first_row = blockIdx.x * a.plan.tiles_per_block * kTileRows;
    const int end_row = min(first_row + a.plan.tiles_per_block * kTileRows, a.geometry.out_rows);
    const float count = static_cast<float>(end_row - first_row);
    const float sum = AddWarps<kColumns>(sums, 0, n), squares = AddWarps<kColumns>(sums, 1, n);
    float* const part =
        a.statistics.parts + static_cast<int64_t>(blockIdx.x) * 3 * columns + first_column + n;
    part[0] = count;
    part[columns] = pivots[n] + sum / count;
    part[2 * columns] = fmaxf(squares - sum * (sum / count), 0.0f);
  }
  CombineStatistics<kColumns>(a.statistics, blockIdx.y, shared);
}

template <typename T, int kColumns, Access kAccess>
void LaunchForward(Queue* queue, ForwardArguments<T> arguments) {
  using Memory = ProductMemory<T, kColumns, MatrixLayout::kByRow, kRowTiles<T, kAccess>>;
  const int channels = arguments.source.channels;
  using Rows = RowLoader<T, kAccess, ValueSource<T>, ForwardTaps>;
  const int coefficients =
      kAccess == Access::kPointwise ? ValueSource<T>::kCoefficients * PaddedChannels(channels) : 0;
  const int64_t shared = std::max<int64_t>(
      PlanShared<Memory>(*queue, arguments.geometry.Reduction(channels),
                         Rows::RingVectors(arguments.source), coefficients, &arguments.plan),
      StatisticsSharedBytes(arguments.statistics.num_parts, kColumns));
  if (!arguments.plan.shares_coefficients) {
    Launch(queue, "convolution_coefficients", {dim3(1), dim3(kTileThreads)},
           CoefficientsKernel<ValueSource<T>>, arguments.source, arguments.coefficients);
  }
  PackPanel<T, kColumns, MatrixLayout::kByRow>(queue, arguments.plan, arguments.weights,
                                               arguments.packed);
  const dim3 grid(arguments.plan.blocks, arguments.plan.column_tiles);
  Launch(queue, "convolution_forward", {grid, dim3(kTileThreads), static_cast<size_t>(shared)},
         ConvolutionForwardKernel<T, kColumns, kAccess>, arguments);
}

// Convolutions over taps have wide tiles, because each group of columns reads x once per tap. Tiles
// of pointwise convolutions are narrower, so that more blocks fit into a multiprocessor.
void Dispatch(Queue* queue, int tile_columns, Access access, ForwardArguments<Bfloat16> a) {
  if (access == Access::kPointwise) {
    if (tile_columns == 32) return LaunchForward<Bfloat16, 32, Access::kPointwise>(queue, a);
    return LaunchForward<Bfloat16, 64, Access::kPointwise>(queue, a);
  }
  if (tile_columns == 32) return LaunchForward<Bfloat16, 32, Access::kTaps>(queue, a);
  if (tile_columns == 64) return LaunchForward<Bfloat16, 64, Access::kTaps>(queue, a);
  LaunchForward<Bfloat16, 128, Access::kTaps>(queue, a);
}

void Dispatch(Queue* queue, int, Access access, ForwardArguments<float> a) {
  if (access == Access::kPointwise) return LaunchForward<float, 64, Access::kPointwise>(queue, a);
  LaunchForward<float, 64, Access::kTaps>(queue, a);
}

}  // namespace

template <typename T>
void ConvolutionForward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                        const float* weights, const float* bias, T* y,
                        const StatisticsOut<T>& statistics, void* workspace) {
  const ConvolutionGeometry geometry(shape);
  const Access access = ChooseAccess(shape);
  const int tile_columns = TileColumns<T>(*queue, access, geometry.out_c);
  unsigned char* const memory = static_cast<unsigned char*>(workspace);
  float* const coefficients = reinterpret_cast<float*>(memory + PlainValueBytes<T>(shape));
  T* const packed = reinterpret_cast<T*>(coefficients + CoefficientBytes(shape) / sizeof(float));
  const ProductPlan plan =
      PlanProduct(*queue, Pass::kForward, geometry.out_rows, geometry.out_c, tile_columns, access);
  const ForwardArguments<T> arguments = {
      geometry,
      plan,
      PlainValue(queue, shape, x, memory),
      {weights, geometry.Reduction(geometry.in_c), geometry.out_c, geometry.in_c,
       Divisor(PaddedChannels(geometry.in_c))},
      bias,
      y,
      SumsFor(queue, statistics, plan.blocks, geometry.out_c, tile_columns,
              packed + PackedBytes<T>(shape) / sizeof(T)),
      coefficients,
      packed};
  Dispatch(queue, tile_columns, access, arguments);
}

template void ConvolutionForward<float>(Queue*, const ConvolutionShape&, const Lazy<float>&,
                                        const float*, const float*, float*,
                                        const StatisticsOut<float>&, void*);
template void ConvolutionForward<Bfloat16>(Queue*, const ConvolutionShape&, const Lazy<Bfloat16>&,
                                           const float*, const float*, Bfloat16*,
                                           const StatisticsOut<Bfloat16>&, void*);

}  // namespace pushpull::PUSHPULL_CUDA
