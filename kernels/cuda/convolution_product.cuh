// The matrix product of the forward pass and the input gradient: rows of activations times weights.
// A block owns kColumns columns and a share of the row tiles. convolution_forward.cu has a drawing.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_PRODUCT_CUH_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_PRODUCT_CUH_

#include "kernels/cuda/convolution_epilogue.cuh"
#include "kernels/cuda/convolution_panel.cuh"
#include "kernels/cuda/convolution_rows.cuh"

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

// A chunk of both operands in registers, on its way to shared memory.
template <typename Rows, typename Weights>
struct FetchedChunk {
  typename Rows::Fetched rows;
  typename Weights::Fetched weights;

  __device__ __forceinline__ void Fetch(const Rows& from, const Weights& panel, int chunk) {
    rows = from.Fetch(chunk * kChunk);
    weights = panel.Fetch(chunk);
  }
};

// Multiplies the chunks of a tile of rows one by one. Meanwhile the next chunk is loaded into
// registers, behind the last one the first of the next tile, which begins at row `next_row`
// (negative: there is none). So the loads also run beside the epilogue. `fetched` has the first
// chunk. Two tiles in shared memory alternate, *turn being the next, so one barrier per chunk is
// enough.
template <typename Memory, typename T, int kColumns, MatrixLayout kPanelLayout, typename Rows>
__device__ __forceinline__ void MultiplyFetchedChunks(
    int chunks, int next_row, Rows& rows, const Panel<T, kColumns, kPanelLayout>& panel,
    unsigned char* tiles, FetchedChunk<Rows, Panel<T, kColumns, kPanelLayout>>* fetched, int* turn,
    TileMath<T, kColumns>* math) {
  if constexpr (!Memory::kStagesApart) __syncthreads();  // all warps have read what they staged
  for (int chunk = 0; chunk < chunks; ++chunk, *turn ^= 1) {
    T* const row_tile = reinterpret_cast<T*>(tiles + *turn * Memory::kRowTileBytes);
    rows.Store(fetched->rows, chunk * kChunk, row_tile);
    panel.Store(fetched->weights, chunk, *turn);
    __syncthreads();
    if (chunk + 1 < chunks) {
      fetched->Fetch(rows, panel, chunk + 1);
    } else if (next_row >= 0) {
      rows.Begin(next_row);
      fetched->Fetch(rows, panel, 0);
    }
    math->template Multiply<MatrixLayout::kByRow, kPanelLayout>(
        row_tile, Rows::kStride, panel.At(chunk, *turn), panel.stride());
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
template <typename Memory, typename T, int kColumns, MatrixLayout kPanelLayout, typename Rows>
__device__ __forceinline__ void MultiplyCopiedChunks(int chunks, const Rows& rows,
                                                     const Panel<T, kColumns, kPanelLayout>& panel,
                                                     unsigned char* tiles,
                                                     TileMath<T, kColumns>* math) {
  // Starts a group of copies each, which is empty behind the last chunk.
  const auto start_rows = [&](int chunk, int tile) {
    if (chunk < chunks) {
      rows.StartCopies(chunk * kChunk, reinterpret_cast<T*>(tiles + tile * Memory::kRowTileBytes));
    }
    CloseCopyGroup();
  };
  const auto start_weights = [&](int chunk) {
    if (chunk < chunks) panel.StartCopies(chunk);
    CloseCopyGroup();
  };
  static_assert(!Memory::kStagesApart);
  __syncthreads();  // all warps have read what they staged, whose place the tiles take
  start_rows(0, 0);
  start_weights(0);
  start_rows(1, 1);
  int tile = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    WaitForCopies<1>();
    __syncthreads();
    start_weights(chunk + 1);
    start_rows(chunk + 2, tile == 0 ? 2 : tile - 1);
    const T* const row_tile = reinterpret_cast<const T*>(tiles + tile * Memory::kRowTileBytes);
    math->template Multiply<MatrixLayout::kByRow, kPanelLayout>(
        row_tile, Rows::kStride, panel.At(chunk, chunk % 2), panel.stride());
    tile = tile == 2 ? 0 : tile + 1;
  }
}

// The block's share of the product. If the epilogue wants the block's first row, it gets that
// first. Then it gets all elements (FinishTile), and the block writes its sums per column to
// `sums`.
template <typename T, int kColumns, MatrixLayout kPanelLayout, typename Rows, typename Epilogue>
__device__ __forceinline__ void MultiplyTiles(const ProductPlan& plan, Rows& rows,
                                              Panel<T, kColumns, kPanelLayout>& panel,
                                              const Epilogue& epilogue, unsigned char* tiles,
                                              float* sums) {
  using Memory = ProductMemory<T, kColumns, kPanelLayout, Rows::kCopies ? 3 : 2>;
  using Math = TileMath<T, kColumns>;
  constexpr int kPhases = Math::kWarpColumns / kStagedColumns;
  float* const staged =
      reinterpret_cast<float*>(tiles + Memory::kStagedOffset + threadIdx.x / 32 * kWarpStagedBytes);
  const int first_tile = blockIdx.x * plan.tiles_per_block;
  const int end_tile = min(first_tile + plan.tiles_per_block, plan.row_tiles);
  const int chunks = (rows.columns() + kChunk - 1) / kChunk;
  for (int i = threadIdx.x; i < kTileWarps * 2 * kColumns; i += kTileThreads) sums[i] = 0.0f;
  __syncthreads();  // the coefficients and the panel are complete
  ColumnSums column_sums[kPhases];
  Math math;
  FetchedChunk<Rows, Panel<T, kColumns, kPanelLayout>> fetched;
  int turn = 0;
  // Float takes so many registers that none are left to load ahead of the epilogue.
  constexpr bool kLoadsAhead = !Rows::kCopies && sizeof(T) == 2;
  if constexpr (kLoadsAhead) {
    rows.Begin(first_tile * kTileRows);
    fetched.Fetch(rows, panel, 0);
  }
  for (int tile = first_tile; tile < end_tile; ++tile) {
    const int first_row = tile * kTileRows;
    math.Clear();
    if constexpr (!kLoadsAhead) rows.Begin(first_row);
    if constexpr (Rows::kCopies) {
      MultiplyCopiedChunks<Memory>(chunks, rows, panel, tiles, &math);
    } else {
      if constexpr (!kLoadsAhead) fetched.Fetch(rows, panel, 0);
      const int next_row = kLoadsAhead && tile + 1 < end_tile ? first_row + kTileRows : -1;
      MultiplyFetchedChunks<Memory>(chunks, next_row, rows, panel, tiles, &fetched, &turn, &math);
    }
    if constexpr (!Memory::kStagesApart) __syncthreads();  // the tiles have been multiplied
    if (tile == first_tile && epilogue.WantsFirstRow()) ShowFirstRow(math, staged, epilogue);
    FinishTile(math, staged, first_row, rows.rows(), epilogue, column_sums);
  }
#pragma unroll
  for (int phase = 0; phase < kPhases; ++phase) {
    AddColumnSums(column_sums[phase], Math::first_column() + phase * kStagedColumns, kColumns,
                  sums);
  }
  __syncthreads();
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_PRODUCT_CUH_
