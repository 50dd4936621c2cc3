// The way of a product from registers to memory. The threads of a warp hold the elements of a tile
// in the pattern of the matrix unit; an epilogue gets eight neighbours of a row at a time. The
// warps do this each on its own, through shared memory of their own, so none waits for another.
//
// An epilogue (OutputEpilogue, InputGradientEpilogue) has
//   which()                      the EpilogueCase
//   Load(column), Columns        what it needs for eight columns, in registers
//   OffsetOf(row, column)        the place of an element in memory
//   FinishVector, Finish         finish, store and sum eight elements; the latter some of them
//   WantsFirstRow(), Begin       whether Begin has to see the first row of the block first
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_EPILOGUE_CUH_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_EPILOGUE_CUH_

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/tile_math.cuh"

namespace pushpull::PUSHPULL_CUDA {

// The cases that an epilogue distinguishes before the loop over its elements.
enum class EpilogueCase {
  kVectors,      // whole vectors of eight columns, and no operand that is rare
  kVectorsMore,  // whole vectors, and such an operand
  kAny,          // columns that are no multiple of 8, one by one
};

// The two sums over rows that an epilogue takes for eight neighbouring columns, of one thread.
struct ColumnSums {
  float partial[2][8] = {};
};

// Passes the numbers that the warp has staged to the epilogue, eight neighbouring columns per
// thread, so that memory accesses are 16 bytes wide. The epilogue adds its two sums per column to
// those of the thread. `first_row` is the first one in the matrix, of `rows`; `column` is the
// thread's first one, and k what the epilogue has loaded for it.
template <EpilogueCase kCase, typename Epilogue>
__device__ __forceinline__ void FinishStaged(const float* staged, int first_row, int rows,
                                             int column, const typename Epilogue::Columns& k,
                                             const Epilogue& epilogue, ColumnSums* sums) {
  constexpr int kRowsAtOnce = 32 / (kStagedColumns / 8);
  const int lane = threadIdx.x % 32;
  const int begin = lane / (kStagedColumns / 8), n = lane % (kStagedColumns / 8) * 8;
  int64_t offset = epilogue.OffsetOf(first_row + begin, column);
#pragma unroll Epilogue::kUnroll
  for (int first = 0; first < kStagedRows;
       first += kRowsAtOnce, offset += int64_t{kRowsAtOnce} * epilogue.columns) {
    const int r = first + begin;
    if (first_row + r >= rows) continue;
    float values[8];
    Load8(staged + r * kStagedStride + n, values);
    if constexpr (kCase == EpilogueCase::kAny) {
      epilogue.Finish(offset, column, values, sums->partial);
    } else {
      epilogue.template FinishVector<kCase>(offset, column, k, values, sums->partial);
    }
  }
}

// Stages and finishes the warp's part of a tile that begins at row `first_row`.
template <EpilogueCase kCase, typename Math, typename Epilogue>
__device__ __forceinline__ void FinishTileCase(const Math& math, float* staged, int first_row,
                                               int rows, const Epilogue& epilogue,
                                               ColumnSums* sums) {
#pragma unroll
  for (int phase = 0; phase < Math::kWarpColumns / kStagedColumns; ++phase) {
    const int column = Math::first_column() + phase * kStagedColumns +
                       static_cast<int>(threadIdx.x) % (kStagedColumns / 8) * 8;
    typename Epilogue::Columns k;
    if constexpr (kCase != EpilogueCase::kAny) k = epilogue.Load(column);
#pragma unroll
    for (int part = 0; part < Math::kWarpRows / kStagedRows; ++part) {
      __syncwarp();  // the warp has read what it staged before
      math.Stage(part, phase, staged);
      __syncwarp();
      FinishStaged<kCase>(staged, first_row + Math::first_row() + part * kStagedRows, rows, column,
                          k, epilogue, &sums[phase]);
    }
  }
}
template <typename Math, typename Epilogue>
__device__ __forceinline__ void FinishTile(const Math& math, float* staged, int first_row, int rows,
                                           const Epilogue& epilogue, ColumnSums* sums) {
  switch (epilogue.which()) {
    case EpilogueCase::kVectors:
      return FinishTileCase<EpilogueCase::kVectors>(math, staged, first_row, rows, epilogue, sums);
    case EpilogueCase::kVectorsMore:
      return FinishTileCase<EpilogueCase::kVectorsMore>(math, staged, first_row, rows, epilogue,
                                                        sums);
    case EpilogueCase::kAny:
      return FinishTileCase<EpilogueCase::kAny>(math, staged, first_row, rows, epilogue, sums);
  }
}

// Shows the epilogue the first row of the tile, by the warps that have it. The block calls it.
template <typename Math, typename Epilogue>
__device__ __forceinline__ void ShowFirstRow(const Math& math, float* staged,
                                             const Epilogue& epilogue) {
  if (Math::first_row() == 0) {
#pragma unroll
    for (int phase = 0; phase < Math::kWarpColumns / kStagedColumns; ++phase) {
      __syncwarp();
      math.Stage(0, phase, staged);
      __syncwarp();
      epilogue.Begin(staged[threadIdx.x % 32], Math::first_column() + phase * kStagedColumns +
                                                   static_cast<int>(threadIdx.x % 32));
    }
  }
  __syncthreads();
}

// Adds the sums of the threads of a warp that have the same columns to the warp's row of
// sums[kTileWarps][2][columns]. At each step the threads halve the sums among themselves, so that a
// shuffle adds two numbers, and they end with two each.
__device__ __forceinline__ void AddColumnSums(const ColumnSums& sums, int first_column, int columns,
                                              float* shared) {
  constexpr int kGroups = kStagedColumns / 8;  // the threads of a warp with different columns
  constexpr int kLeft = 16 * kGroups / 32;     // the sums that a thread ends with
  static_assert(kLeft == 2);
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

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_EPILOGUE_CUH_
