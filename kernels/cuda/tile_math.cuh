// A tile of a matrix product, kTileRows x kColumns, in the registers of a block of kTileThreads
// threads. The block goes through the reduction in chunks of kChunk; both operands of a chunk are
// in shared memory. All threads of the block call the functions together.
//
//                       b [kChunk][kColumns]
//                      .--------------------.
//    kChunk = 32       '--------------------'
//   .------------.     .--------------------.
//   | a          |     | sums               |    kTileRows = 128
//   '------------'     '--------------------'
#ifndef PUSHPULL_KERNELS_CUDA_TILE_MATH_CUH_
#define PUSHPULL_KERNELS_CUDA_TILE_MATH_CUH_

#include "kernels/cuda/matrix_unit.cuh"

namespace pushpull::PUSHPULL_CUDA {

inline constexpr int kTileRows = 128;
inline constexpr int kTileThreads = 256;
inline constexpr int kTileWarps = kTileThreads / 32;
inline constexpr int kChunk = 32;

// How a matrix lies in shared memory. kByRow: element (r, c) is at r * stride + c. kByColumn: it is
// at c * stride + r.
enum class MatrixLayout { kByRow, kByColumn };

// The unused numbers at the end of each line in shared memory. Lines are multiples of 32 numbers
// long; with 16 more bytes they are odd multiples of 16 bytes, so that the 16-byte rows of eight
// neighbouring lines, which one ldmatrix reads, meet different banks.
template <typename T>
inline constexpr int kLinePadding = static_cast<int>(16 / sizeof(T));

// The result goes from registers to memory by way of shared memory, so that stores are 16 bytes
// wide. Each warp stages kStagedRows x kStagedColumns numbers of its own part of the tile at a
// time, in lines of kStagedStride floats, so warps need not wait for each other.
inline constexpr int kStagedRows = 16, kStagedColumns = 32, kStagedStride = kStagedColumns + 4;
inline constexpr int kWarpStagedBytes =
    kStagedRows * kStagedStride * static_cast<int>(sizeof(float));

template <typename T, int kColumns>
struct TileMath;

// Bfloat16 on tensor cores. The eight warps are laid out 4 x 2 over the tile, or 8 x 1 if it has
// only 32 columns. Each computes its part as squares of 16 x 16 and holds it in kColumns / 2
// registers per thread. A fragment of A serves all columns of the warp, a fragment of B all groups
// of 16 rows. In the networks here memory traffic is the bound, not the tensor cores (NOTES.md).
//
//        kColumns / 2   kColumns / 2
//       .------------.------------.
//       | warp 0     | warp 1     |  32 rows
//       | warp 2     | warp 3     |
//       | warp 4     | warp 5     |
//       | warp 6     | warp 7     |
//       '------------'------------'
template <int kColumns>
struct TileMath<Bfloat16, kColumns> {
  static constexpr int kWarpsAcross = kColumns == 32 ? 1 : 2;
  static constexpr int kWarpColumns = kColumns / kWarpsAcross;
  static constexpr int kWarpRows = kTileRows * kWarpsAcross / kTileWarps;
  static constexpr int kRowGroups = kWarpRows / 16;
  static constexpr int kPairs = kWarpColumns / 16;  // of fragments of 8 columns
  float sums[kRowGroups][2 * kPairs][4];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[i][j][k] = 0.0f;
      }
    }
  }

  // sums += a[kTileRows][kChunk] * b[kChunk][kColumns].
  template <MatrixLayout kA, MatrixLayout kB>
  __device__ __forceinline__ void Multiply(const Bfloat16* a, int a_stride, const Bfloat16* b,
                                           int b_stride) {
    const int lane = threadIdx.x % 32;
    const int low = lane % 8, middle = lane / 8 % 2 * 8, high = lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < kChunk; k += 16) {
      unsigned rows[kRowGroups][4];
#pragma unroll
      for (int i = 0; i < kRowGroups; ++i) {
        const int row = first_row() + 16 * i;
        if constexpr (kA == MatrixLayout::kByRow) {
          LoadMatrices(a + (row + low + middle) * a_stride + k + high, rows[i]);
        } else {
          LoadMatricesTransposed(a + (k + low + high) * a_stride + row + middle, rows[i]);
        }
      }
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int column = first_column() + 16 * j;
        unsigned columns[4];
        if constexpr (kB == MatrixLayout::kByColumn) {
          LoadMatrices(b + (column + low + high) * b_stride + k + middle, columns);
        } else {
          LoadMatricesTransposed(b + (k + low + middle) * b_stride + column + high, columns);
        }
#pragma unroll
        for (int i = 0; i < kRowGroups; ++i) {
          MultiplyAdd(rows[i], columns, sums[i][2 * j]);
          MultiplyAdd(rows[i], columns + 2, sums[i][2 * j + 1]);
        }
      }
    }
  }

  // Whether the warp's part of the tile has one of the first `rows` rows and `columns` columns.
  __device__ __forceinline__ bool Meets(int rows, int columns) const {
    return first_row() < rows && first_column() < columns;
  }

  // Calls visit(row, column, sum) for the elements of the tile that this thread holds.
  template <typename Visit>
  __device__ __forceinline__ void ForEach(Visit visit) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kRowGroups; ++i) {
#pragma unroll
      for (int j = 0; j < 2 * kPairs; ++j) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          visit(first_row() + 16 * i + lane / 4 + k / 2 * 8,
                first_column() + 8 * j + lane % 4 * 2 + k % 2, sums[i][j][k]);
        }
      }
    }
  }

  // Copies a part of what the warp holds to staged[kStagedRows][kStagedStride]: rows from
  // first_row() + kStagedRows * rows on, columns from first_column() + kStagedColumns * columns on.
  __device__ __forceinline__ void Stage(int rows, int columns, float* staged) const {
    const int lane = threadIdx.x % 32;
    float* const to = staged + lane / 4 * kStagedStride + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kStagedColumns / 8; ++j) {
      const float* const from = sums[rows][columns * (kStagedColumns / 8) + j];
      *reinterpret_cast<float2*>(to + 8 * j) = make_float2(from[0], from[1]);
      *reinterpret_cast<float2*>(to + 8 * kStagedStride + 8 * j) = make_float2(from[2], from[3]);
    }
  }

  static __device__ __forceinline__ int first_row() {
    return threadIdx.x / 32 / kWarpsAcross * kWarpRows;
  }
  static __device__ __forceinline__ int first_column() {
    return threadIdx.x / 32 % kWarpsAcross * kWarpColumns;
  }
};

// Float on the ordinary units, in full precision (no TF32). The warps are laid out as for Bfloat16,
// 4 x 2, and the threads of a warp 4 x 8; each owns every 4th row and every 8th column of the
// warp's part, 8 x (kColumns / 16) sums in registers. For each of the kChunk steps a thread reads 8
// + kColumns / 16 numbers from shared memory for 8 * (kColumns / 16) multiply-adds. With 64 columns
// that is 12 reads for 32 multiply-adds, so the bandwidth of shared memory is the likely bound.
template <int kColumns>
struct TileMath<float, kColumns> {
  static constexpr int kWarpRows = 32, kWarpColumns = kColumns / 2;
  static constexpr int kThreadRows = kWarpRows / 4, kThreadColumns = kWarpColumns / 8;
  float sums[kThreadRows][kThreadColumns];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadColumns; ++j) sums[i][j] = 0.0f;
    }
  }

  template <MatrixLayout kA, MatrixLayout kB>
  __device__ __forceinline__ void Multiply(const float* a, int a_stride, const float* b,
                                           int b_stride) {
    for (int k = 0; k < kChunk; ++k) {
      float rows[kThreadRows], columns[kThreadColumns];
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        const int row = RowOf(i);
        rows[i] = kA == MatrixLayout::kByRow ? a[row * a_stride + k] : a[k * a_stride + row];
      }
#pragma unroll
      for (int j = 0; j < kThreadColumns; ++j) {
        const int column = ColumnOf(j);
        columns[j] =
            kB == MatrixLayout::kByRow ? b[k * b_stride + column] : b[column * b_stride + k];
      }
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadColumns; ++j) sums[i][j] += rows[i] * columns[j];
      }
    }
  }

  __device__ __forceinline__ bool Meets(int, int) const { return true; }

  template <typename Visit>
  __device__ __forceinline__ void ForEach(Visit visit) const {
#pragma unroll
    for (int i = 0; i < kThreadRows; ++i) {
#pragma unroll
      for (int j = 0; j < kThreadColumns; ++j) visit(RowOf(i), ColumnOf(j), sums[i][j]);
    }
  }

  __device__ __forceinline__ void Stage(int rows, int columns, float* staged) const {
    const int lane = threadIdx.x % 32;
    float* const to = staged + lane / 8 * kStagedStride + lane % 8;
#pragma unroll
    for (int i = 0; i < kStagedRows / 4; ++i) {
#pragma unroll
      for (int j = 0; j < kStagedColumns / 8; ++j) {
        to[4 * i * kStagedStride + 8 * j] =
            sums[rows * (kStagedRows / 4) + i][columns * (kStagedColumns / 8) + j];
      }
    }
  }

  static __device__ __forceinline__ int first_row() { return threadIdx.x / 32 / 2 * kWarpRows; }
  static __device__ __forceinline__ int first_column() {
    return threadIdx.x / 32 % 2 * kWarpColumns;
  }

 private:
  static __device__ __forceinline__ int RowOf(int i) {
    return first_row() + static_cast<int>(threadIdx.x % 32 / 8) + 4 * i;
  }
  static __device__ __forceinline__ int ColumnOf(int j) {
    return first_column() + static_cast<int>(threadIdx.x % 8) + 8 * j;
  }
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_TILE_MATH_CUH_
