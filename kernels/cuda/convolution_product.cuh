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
  int blocks;                  // gridDim.x
  int column_tiles;            // gridDim.y
  int ring_slots, ring_bytes;  // of the ring for raw numbers of the rows
  bool shares_coefficients;    // the coefficients are in shared memory, else in device memory
  bool resident;               // the whole panel of weights is in shared memory, else two chunks
};

// The matrix product of one tile of rows, chunk by chunk, in three ways. This one is for float: the
// next chunk is loaded into registers while one is multiplied. Two tiles in shared memory
// alternate, so one barrier per chunk is enough.
template <typename Memory, typename T, int kColumns, MatrixLayout kPanelLayout, typename Rows>
__device__ __forceinline__ void MultiplyFetchedChunks(int chunks, const Rows& rows,
                                                      const Panel<T, kColumns, kPanelLayout>& panel,
                                                      unsigned char* tiles,
                                                      TileMath<T, kColumns>* math) {
  static_assert(!Memory::kStagesApart);
  typename Rows::Fetched row = rows.Fetch(0);
  auto weights = panel.Fetch(0);
  __syncthreads();  // all warps have read what they staged, whose place the tiles take
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int turn = chunk % 2;
    T* const row_tile = reinterpret_cast<T*>(tiles + turn * Memory::kRowTileBytes);
    rows.Store(row, chunk * kChunk, row_tile);
    panel.Store(weights, chunk, turn);
    __syncthreads();
    if (chunk + 1 < chunks) {
      row = rows.Fetch((chunk + 1) * kChunk);
      weights = panel.Fetch(chunk + 1);
    }
    math->template Multiply<MatrixLayout::kByRow, kPanelLayout>(
        row_tile, Rows::kStride, panel.At(chunk, turn), panel.stride());
  }
}

// Where a block is in its ring. It goes from tile to tile, so that raw numbers of the next tile are
// under way beside the epilogue.
template <typename Rows>
struct RingTurn {
  int slot = 0, tile = 0;
  int ahead_row, ahead_chunk = 0;  // what is started next

  // Starts a group of copies for one chunk, which is empty after the last tile.
  __device__ __forceinline__ void Start(int chunks, int end_row, const Rows& rows,
                                        const RawRing& ring, int to) {
    if (ahead_row < end_row) {
      rows.StartRaw(ahead_row, ahead_chunk * kChunk, ring, to);
      if (++ahead_chunk == chunks) {
        ahead_chunk = 0;
        ahead_row += kTileRows;
      }
    }
    CloseCopyGroup();
  }
};

// This one is for rows that are formed from raw numbers, which come through a ring some chunks
// ahead.
//
//   chunk c:   wait until the raw numbers of c are there; form the chunk's elements; start the
//              next copies into the same slot; barrier; multiply c
template <typename Memory, typename T, int kColumns, MatrixLayout kPanelLayout, typename Rows>
__device__ __forceinline__ void MultiplyRingChunks(
    int chunks, int first_row, int end_row, const Rows& rows, const RawRing& ring,
    const Panel<T, kColumns, kPanelLayout>& panel, unsigned char* tiles,
    typename Panel<T, kColumns, kPanelLayout>::Fetched* weights, RingTurn<Rows>* turn,
    TileMath<T, kColumns>* math) {
  static_assert(Memory::kStagesApart);
  for (int chunk = 0; chunk < chunks; ++chunk, turn->tile ^= 1) {
    T* const row_tile = reinterpret_cast<T*>(tiles + turn->tile * Memory::kRowTileBytes);
    ring.Wait();
    rows.StoreRaw(ring, turn->slot, first_row, chunk * kChunk, row_tile);
    turn->Start(chunks, end_row, rows, ring, turn->slot);
    turn->slot = ring.After(turn->slot);
    panel.Store(*weights, chunk, turn->tile);
    __syncthreads();
    *weights = panel.Fetch(chunk + 1 < chunks ? chunk + 1 : 0);
    math->template Multiply<MatrixLayout::kByRow, kPanelLayout>(
        row_tile, Rows::kStride, panel.At(chunk, turn->tile), panel.stride());
  }
}

// This one is for rows of plain numbers, which copies bring to their places: rows two chunks ahead,
// into three tiles, and weights, which come from the L2 cache, one chunk ahead.
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
  // Starts a group of copies each, which is empty after the last chunk.
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
  const int end_row = end_tile * kTileRows;
  [[maybe_unused]] const RawRing ring(tiles + Memory::kTilesBytes, plan.ring_slots,
                                      Rows::RingVectors(rows.source()));
  [[maybe_unused]] RingTurn<Rows> turn;
  [[maybe_unused]] typename Panel<T, kColumns, kPanelLayout>::Fetched weights;
  if constexpr (Rows::kRings) {
    turn.ahead_row = first_tile * kTileRows;
    for (int slot = 0; slot < ring.slots(); ++slot) turn.Start(chunks, end_row, rows, ring, slot);
    weights = panel.Fetch(0);
  }
  for (int tile = first_tile; tile < end_tile; ++tile) {
    const int first_row = tile * kTileRows;
    math.Clear();
    if constexpr (Rows::kRings) {
      MultiplyRingChunks<Memory>(chunks, first_row, end_row, rows, ring, panel, tiles, &weights,
                                 &turn, &math);
    } else {
      rows.Begin(first_row);
      if constexpr (Rows::kCopies) {
        MultiplyCopiedChunks<Memory>(chunks, rows, panel, tiles, &math);
      } else {
        MultiplyFetchedChunks<Memory>(chunks, rows, panel, tiles, &math);
      }
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
