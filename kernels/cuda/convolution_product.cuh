// The matrix product of the forward pass and the input gradient: rows of activations times weights.
// A block owns kColumns columns and a share of the row tiles. convolution_forward.cu has a drawing.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_PRODUCT_CUH_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_PRODUCT_CUH_

#include "kernels/cuda/convolution_panel.cuh"
#include "kernels/cuda/convolution_rows.cuh"
#include "kernels/cuda/epilogue_case.cuh"

namespace pushpull::PUSHPULL_CUDA {

// The tiles of a block. blockIdx.x is its share of the rows, blockIdx.y its group of columns.
struct ProductPlan {
  int row_tiles;
  int tiles_per_block;
  int blocks;                // gridDim.x
  int column_tiles;          // gridDim.y
  bool shares_coefficients;  // the coefficients are in shared memory, else in device memory
  bool resident;             // the whole panel of weights is in shared memory, else two chunks
};

// The two sums over rows that an epilogue takes for eight neighbouring columns, of one thread.
struct ColumnSums {
  float partial[2][8] = {};
};

// Passes kStagedRows x kStaged staged sums (columns from first_column of `columns`) to the
// epilogue, eight neighbours per thread, so that memory accesses are 16 bytes wide. The epilogue
// adds its two sums per column to those of the thread.
template <int kStagedRows, int kStaged, EpilogueCase kCase, typename Epilogue>
__device__ __forceinline__ void FinishStagedCase(const float* staged, int first_row, int rows,
                                                 int first_column, int columns,
                                                 const Epilogue& epilogue, ColumnSums* sums) {
  const int n = threadIdx.x % (kStaged / 8) * 8;
  const int column = first_column + n;
  if (column >= columns) return;
  typename Epilogue::Columns k;
  if constexpr (kCase != EpilogueCase::kAny) k = epilogue.Load(column);
  constexpr int kRowsAtOnce = kTileThreads / (kStaged / 8);
  const int begin = threadIdx.x / (kStaged / 8);
  int64_t offset = epilogue.OffsetOf(first_row + begin, column);
#pragma unroll Epilogue::kUnroll
  for (int first = 0; first < kStagedRows;
       first += kRowsAtOnce, offset += int64_t{kRowsAtOnce} * epilogue.columns) {
    const int r = first + begin;
    if (first_row + r >= rows) continue;
    float values[8];
    Load8(staged + r * StagedStride(kStaged) + n, values);
    if constexpr (kCase == EpilogueCase::kAny) {
      epilogue.Finish(offset, column, values, sums->partial);
    } else {
      epilogue.template FinishVector<kCase>(offset, column, k, values, sums->partial);
    }
  }
}

template <int kStagedRows, int kStaged, typename Epilogue>
__device__ __forceinline__ void FinishStaged(const float* staged, int first_row, int rows,
                                             int first_column, int columns,
                                             const Epilogue& epilogue, ColumnSums* sums) {
  switch (epilogue.which()) {
    case EpilogueCase::kVectors:
      return FinishStagedCase<kStagedRows, kStaged, EpilogueCase::kVectors>(
          staged, first_row, rows, first_column, columns, epilogue, sums);
    case EpilogueCase::kVectorsMore:
      return FinishStagedCase<kStagedRows, kStaged, EpilogueCase::kVectorsMore>(
          staged, first_row, rows, first_column, columns, epilogue, sums);
    case EpilogueCase::kAny:
      return FinishStagedCase<kStagedRows, kStaged, EpilogueCase::kAny>(
          staged, first_row, rows, first_column, columns, epilogue, sums);
  }
}

// Adds the sums of the threads of a warp that have the same columns to the warp's row of
// sums[kTileWarps][2][columns]. At each step the threads halve the sums among themselves, so that a
// shuffle adds two numbers, and they end with two or four each.
template <int kStaged>
__device__ __forceinline__ void AddColumnSums(const ColumnSums& sums, int first_column, int columns,
                                              float* shared) {
  constexpr int kGroups = kStaged / 8;      // the threads of a warp with different columns
  constexpr int kLeft = 16 * kGroups / 32;  // the sums that a thread ends with
  static_assert(kLeft == 2 || kLeft == 4);
  const int lane = threadIdx.x % 32;
  float values[16];
#pragma unroll
  for (int e = 0; e < 16; ++e) values[e] = sums.partial[e / 8][e % 8];
  int first = 0;  // of the 16, the first of those that the thread still has
#pragma unroll
  for (int half = 8; half >= kLeft; half /= 2) {
    const int lanes = 8 * kGroups / half;
    const bool upper = (lane & lanes) != 0;
    if (upper) first += half;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e >= half) continue;
      const float other = upper ? values[e] : values[half + e];
      values[e] = upper ? values[half + e] : values[e];
      values[e] += __shfl_xor_sync(0xffffffffu, other, lanes);
    }
  }
  const int column = first_column + lane % kGroups * 8;
  if (column >= columns) return;
  float* const own = shared + (threadIdx.x / 32 * 2 + first / 8) * columns + column + first % 8;
#pragma unroll
  for (int e = 0; e < kLeft; e += 2) {
    const float2 before = *reinterpret_cast<const float2*>(own + e);
    *reinterpret_cast<float2*>(own + e) =
        make_float2(before.x + values[e], before.y + values[e + 1]);
  }
}

// Multiplies the chunks of a tile of rows one by one. The next chunk is loaded into registers
// meanwhile. Two tiles in shared memory alternate, so one barrier per chunk is enough.
template <int kRowTileBytes, typename T, int kColumns, MatrixLayout kPanelLayout, typename Rows>
__device__ __forceinline__ void MultiplyFetchedChunks(int chunks, const Rows& rows,
                                                      const Panel<T, kColumns, kPanelLayout>& panel,
                                                      unsigned char* tiles,
                                                      TileMath<T, kColumns>* math) {
  typename Rows::Fetched fetched = rows.Fetch(0);
  typename Panel<T, kColumns, kPanelLayout>::Fetched weights = panel.Fetch(0);
  __syncthreads();  // all threads have read the staged result, whose place the tiles take
  for (int chunk = 0; chunk < chunks; ++chunk) {
    T* const row_tile = reinterpret_cast<T*>(tiles + chunk % 2 * kRowTileBytes);
    rows.Store(fetched, chunk * kChunk, row_tile);
    panel.Store(weights, chunk);
    __syncthreads();
    if (chunk + 1 < chunks) {
      fetched = rows.Fetch((chunk + 1) * kChunk);
      weights = panel.Fetch(chunk + 1);
    }
    math->template Multiply<MatrixLayout::kByRow, kPanelLayout>(row_tile, Rows::kStride,
                                                                panel.At(chunk), panel.stride());
  }
}

// The same with copies that run beside the threads: of the rows two chunks ahead, into three tiles,
// and of the weights, which come from the L2 cache, one chunk ahead.
//
//   chunk c:   wait until rows c and weights c are there (rows c + 1 may be under way); barrier;
//              start weights c + 1; start rows c + 2; multiply c
//
// The barrier makes the copies of all threads visible. It also means that chunk c - 1 has been
// multiplied, whose places the copies that begin then take.
template <int kRowTileBytes, typename T, int kColumns, MatrixLayout kPanelLayout, typename Rows>
__device__ __forceinline__ void MultiplyCopiedChunks(int chunks, const Rows& rows,
                                                     const Panel<T, kColumns, kPanelLayout>& panel,
                                                     unsigned char* tiles,
                                                     TileMath<T, kColumns>* math) {
  // Starts a group of copies each, which is empty behind the last chunk.
  const auto start_rows = [&](int chunk, int tile) {
    if (chunk < chunks) {
      rows.StartCopies(chunk * kChunk, reinterpret_cast<T*>(tiles + tile * kRowTileBytes));
    }
    CloseCopyGroup();
  };
  const auto start_weights = [&](int chunk) {
    if (chunk < chunks) panel.StartCopies(chunk);
    CloseCopyGroup();
  };
  __syncthreads();  // all threads have read the staged result, whose place the tiles take
  start_rows(0, 0);
  start_weights(0);
  start_rows(1, 1);
  int tile = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    WaitForCopies<1>();
    __syncthreads();
    start_weights(chunk + 1);
    start_rows(chunk + 2, tile == 0 ? 2 : tile - 1);
    const T* const row_tile = reinterpret_cast<const T*>(tiles + tile * kRowTileBytes);
    math->template Multiply<MatrixLayout::kByRow, kPanelLayout>(row_tile, Rows::kStride,
                                                                panel.At(chunk), panel.stride());
    tile = tile == 2 ? 0 : tile + 1;
  }
}

// The block's share of the product. Calls epilogue.Begin(staged, first column, columns) once per
// block and phase, then FinishStaged for all elements, and writes the sums per column to `sums`.
template <typename T, int kColumns, MatrixLayout kPanelLayout, typename Rows, typename Epilogue>
__device__ __forceinline__ void MultiplyTiles(const ProductPlan& plan, Rows& rows,
                                              Panel<T, kColumns, kPanelLayout>& panel,
                                              const Epilogue& epilogue, unsigned char* tiles,
                                              float* sums) {
  using Memory = ProductMemory<T, kColumns, kPanelLayout>;  // its tiles are of any number
  float* const staged = reinterpret_cast<float*>(tiles);
  const int first_tile = blockIdx.x * plan.tiles_per_block;
  const int end_tile = min(first_tile + plan.tiles_per_block, plan.row_tiles);
  const int chunks = (rows.columns() + kChunk - 1) / kChunk;
  for (int i = threadIdx.x; i < kTileWarps * 2 * kColumns; i += kTileThreads) sums[i] = 0.0f;
  __syncthreads();  // the coefficients and the panel are complete
  constexpr int kStaged = StagedColumns(kColumns);
  constexpr int kPhases = kColumns / kStaged;
  ColumnSums column_sums[kPhases];
  TileMath<T, kColumns> math;
  for (int tile = first_tile; tile < end_tile; ++tile) {
    const int first_row = tile * kTileRows;
    rows.Begin(first_row);
    math.Clear();
    if constexpr (Rows::kCopies) {
      MultiplyCopiedChunks<Memory::kRowTileBytes>(chunks, rows, panel, tiles, &math);
    } else {
      MultiplyFetchedChunks<Memory::kRowTileBytes>(chunks, rows, panel, tiles, &math);
    }
#pragma unroll
    for (int phase = 0; phase < kPhases; ++phase) {
      __syncthreads();
      math.ForEach([&](int row, int column, float sum) {
        if (column / kStaged == phase) {
          staged[row * StagedStride(kStaged) + column % kStaged] = sum;
        }
      });
      __syncthreads();
      if (tile == first_tile && epilogue.Begin(staged, phase * kStaged, kStaged)) __syncthreads();
      FinishStaged<kTileRows, kStaged>(staged, first_row, rows.rows(), phase * kStaged, kColumns,
                                       epilogue, &column_sums[phase]);
    }
  }
#pragma unroll
  for (int phase = 0; phase < kPhases; ++phase) {
    AddColumnSums<kStaged>(column_sums[phase], phase * kStaged, kColumns, sums);
  }
  __syncthreads();
}

// Adds the warps' sums of one column, in order.
template <int kColumns>
__device__ __forceinline__ float AddWarps(const float* sums, int which, int column) {
  float total = 0.0f;
#pragma unroll
  for (int warp = 0; warp < kTileWarps; ++warp) {
    total += sums[(warp * 2 + which) * kColumns + column];
  }
  return total;
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_PRODUCT_CUH_
