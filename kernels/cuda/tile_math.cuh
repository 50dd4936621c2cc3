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
inline constexpr int kChunk = 32;

// How a matrix lies in shared memory. kByRow: element (r, c) is at r * stride + c. kByColumn: it is
// at c * stride + r.
enum class MatrixLayout { kByRow, kByColumn };

// The unused numbers at the end of each line in shared memory. Lines are multiples of 32 numbers
// long; with 16 more bytes they are odd multiples of 16 bytes, so that the 16-byte rows of eight
// neighbouring lines, which one ldmatrix reads, meet different banks.
template <typename T>
inline constexpr int kLinePadding = static_cast<int>(16 / sizeof(T));

template <typename T, int kColumns>
struct TileMath;

// Bfloat16 on tensor cores. The eight warps are laid out 4 x 2 over the tile; each computes a
// 32 x (kColumns / 2) part as 2 x kPairs squares of 16 x 16 and holds it in kColumns / 2 registers
// per thread. A fragment of A serves all columns of the warp, a fragment of B both groups of 16
// rows. In the networks here memory traffic is the bound, not the tensor cores (NOTES.md).
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
  static constexpr int kWarpColumns = kColumns / 2;
  static constexpr int kPairs = kWarpColumns / 16;  // of fragments of 8 columns
  float sums[2][2 * kPairs][4];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
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
      unsigned rows[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
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
        for (int i = 0; i < 2; ++i) {
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
    for (int i = 0; i < 2; ++i) {
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

 private:
  static __device__ __forceinline__ int first_row() { return threadIdx.x / 32 / 2 * 32; }
  static __device__ __forceinline__ int first_column() {
    return threadIdx.x / 32 % 2 * kWarpColumns;
  }
};

// Float on the ordinary units, in full precision (no TF32). The threads are laid out 16 x 16 over
// the tile; each owns every 16th row and every 16th column, 8 x (kColumns / 16) sums in registers.
// For each of the kChunk steps a thread reads 8 + kColumns / 16 numbers from shared memory for
// 8 * (kColumns / 16) multiply-adds. With 64 columns that is 12 reads for 32 multiply-adds, so the
// bandwidth of shared memory is the likely bound.
template <int kColumns>
struct TileMath<float, kColumns> {
  static constexpr int kThreadRows = kTileRows / 16, kThreadColumns = kColumns / 16;
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
    const int first_row = threadIdx.x / 16, first_column = threadIdx.x % 16;
    for (int k = 0; k < kChunk; ++k) {
      float rows[kThreadRows], columns[kThreadColumns];
#pragma unroll
      for (int i = 0; i < kThreadRows; ++i) {
        const int row = first_row + 16 * i;
        rows[i] = kA == MatrixLayout::kByRow ? a[row * a_stride + k] : a[k * a_stride + row];
      }
#pragma unroll
      for (int j = 0; j < kThreadColumns; ++j) {
        const int column = first_column + 16 * j;
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
      for (int j = 0; j < kThreadColumns; ++j) {
        visit(static_cast<int>(threadIdx.x / 16 + 16 * i),
              static_cast<int>(threadIdx.x % 16 + 16 * j), sums[i][j]);
      }
    }
  }
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_TILE_MATH_CUH_
