// The right operand of a convolution as a matrix product. Blocks keep all of their columns in
// shared memory, or two chunks, which they read from a packed copy.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_PANEL_CUH_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_PANEL_CUH_

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/convolution_sources.cuh"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/tile_math.cuh"

namespace pushpull::PUSHPULL_CUDA {

// The layout of a block's shared memory, in order: tiles, panel, sums, coefficients. In bytes.
template <typename T, int kColumns, MatrixLayout kPanelLayout, int kRowTiles = 2>
struct ProductMemory {
  static constexpr int kRowTileBytes =
      kTileRows * (kChunk + kLinePadding<T>)*static_cast<int>(sizeof(T));
  // The tiles of rows, and what the warps stage of the result. Where the tiles are large, that is
  // in the same place.
  static constexpr bool kStagesApart = sizeof(T) == 2 && kRowTiles == 2;
  static constexpr int kStagedBytes = kTileWarps * kWarpStagedBytes;
  static constexpr int kStagedOffset = kStagesApart ? kRowTiles * kRowTileBytes : 0;
  static constexpr int kTilesBytes = kRowTiles * kRowTileBytes + (kStagesApart ? kStagedBytes : 0);
  static_assert(kTilesBytes >= kStagedBytes);
  static constexpr int kSumsBytes = kTileWarps * 2 * kColumns * static_cast<int>(sizeof(float));

  // The panel is [reduction][kColumns] (kByRow) or [kColumns][reduction] (kByColumn), plus padding.
  static PUSHPULL_HOST_DEVICE int PanelStride(int reduction, bool resident) {
    if (kPanelLayout == MatrixLayout::kByRow) return kColumns + kLinePadding<T>;
    const int whole = (reduction + kChunk - 1) / kChunk * kChunk;
    return (resident ? whole : kChunk) + kLinePadding<T>;
  }
  static PUSHPULL_HOST_DEVICE int PanelBytes(int reduction, bool resident) {
    const int whole = (reduction + kChunk - 1) / kChunk * kChunk;
    const int lines = kPanelLayout == MatrixLayout::kByRow ? (resident ? whole : 2 * kChunk)
                                                           : (resident ? kColumns : 2 * kColumns);
    return lines * PanelStride(reduction, resident) * static_cast<int>(sizeof(T));
  }
  static PUSHPULL_HOST_DEVICE int TotalBytes(int reduction, bool resident, int coefficients) {
    return kTilesBytes + PanelBytes(reduction, resident) + kSumsBytes +
           (coefficients + kColumns * 4) * static_cast<int>(sizeof(float));
  }
};

// The right operand [reduction][columns]. Row q of it belongs to a tap and a channel: q = tap *
// PaddedChannels(channels) + channel; beyond the channels it is zero. Element (q, n) is
// weights[tap][channel][n] for kByRow and weights[tap][n][channel] for kByColumn.
struct PanelWeights {
  const float* weights;
  int reduction, columns, channels;
  Divisor padded;  // divides by PaddedChannels(channels)

  // Forms vector number i, eight neighbours, of the chunk of kColumns columns that begins at row
  // `first` and column `first_column`. *place is where it belongs in a chunk whose lines are
  // `stride` long.
  template <int kColumns, MatrixLayout kLayout>
  __device__ __forceinline__ void Form(int first, int first_column, int i, int stride,
                                       float values[8], int* place) const {
#pragma unroll
    for (int e = 0; e < 8; ++e) values[e] = 0.0f;
    if constexpr (kLayout == MatrixLayout::kByRow) {
      const int k = i / (kColumns / 8), n = i % (kColumns / 8) * 8;
      *place = k * stride + n;
      const int row = RowOf(first + k), column = first_column + n;
      if (row < 0) return;
      Read8(weights + static_cast<int64_t>(row) * columns + column, columns - column,
            columns % 4 == 0, values);
    } else {
      const int n = i / (kChunk / 8), k = i % (kChunk / 8) * 8;
      *place = n * stride + k;
      const int q = first + k, column = first_column + n;
      if (column >= columns || q >= reduction) return;
      int channel;
      const int tap = padded.Quotient(q, &channel);
      Read8(weights + (static_cast<int64_t>(tap) * columns + column) * channels + channel,
            channels - channel, channels % 8 == 0, values);
    }
  }

 private:
  // Reads eight numbers, or the first `count` of them.
  static __device__ __forceinline__ void Read8(const float* from, int count, bool aligned,
                                               float values[8]) {
    if (aligned && count >= 8) {
      Load8(from, values);
      return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      if (e < count) values[e] = from[e];
    }
  }

  // The row of weights[taps * channels][columns] for row q of the operand; -1 if that is zero.
  __device__ __forceinline__ int RowOf(int q) const {
    if (q >= reduction) return -1;
    if (channels % 8 == 0) return q;
    int channel;
    const int tap = padded.Quotient(q, &channel);
    return channel < channels ? tap * channels + channel : -1;
  }
};

// Writes the chunks of the panels of all groups of columns (blockIdx.y), one chunk per blockIdx.x,
// as T: packed[groups][chunks][kChunk * kColumns], with the vectors in the order of PanelWeights.
// Each weight is read once: bound by the launch.
template <typename T, int kColumns, MatrixLayout kLayout>
__global__ void PackPanelKernel(PanelWeights weights, T* packed) {
  constexpr int kVectors = kChunk * kColumns / 8;
  T* const to = packed + static_cast<int64_t>(blockIdx.y * gridDim.x + blockIdx.x) * kVectors * 8;
  for (int i = threadIdx.x; i < kVectors; i += kTileThreads) {
    float values[8];
    int place;
    weights.template Form<kColumns, kLayout>(blockIdx.x * kChunk, blockIdx.y * kColumns, i, 0,
                                             values, &place);
    Store8(values, to + 8 * i);
  }
}

// The panel of a block in shared memory. If it is not resident, chunks of a packed copy pass
// through two places there: Fetch loads a chunk into registers while another is multiplied, Store
// writes it to its place; or StartCopies does both beside the threads.
template <typename T, int kColumns, MatrixLayout kLayout>
class Panel {
 public:
  using Memory = ProductMemory<T, kColumns, kLayout>;
  static constexpr int kVectors = kChunk * kColumns / 8;
  static constexpr int kPerThread = (kVectors + kTileThreads - 1) / kTileThreads;
  static constexpr bool kAhead = kColumns > 32;
  struct Fetched {
    Raw8<T> vectors[kAhead ? kPerThread : 1];
  };

  __device__ __forceinline__ Panel(const PanelWeights& weights, const T* packed, int group,
                                   bool resident, T* shared)
      : resident_(resident),
        stride_(Memory::PanelStride(weights.reduction, resident)),
        packed_(packed),
        shared_(shared) {
    const int chunks = (weights.reduction + kChunk - 1) / kChunk;
    if (!resident) {
      packed_ += static_cast<int64_t>(group) * chunks * kVectors * 8 + threadIdx.x * 8;
      return;
    }
    for (int chunk = 0; chunk < chunks; ++chunk) {
      for (int i = threadIdx.x; i < kVectors; i += kTileThreads) {
        float values[8];
        int place;
        weights.template Form<kColumns, kLayout>(chunk * kChunk, group * kColumns, i, stride_,
                                                 values, &place);
        Store8(values, At(chunk, 0) + place);
      }
    }
  }

  __device__ __forceinline__ int stride() const { return stride_; }

  __device__ __forceinline__ Fetched Fetch(int chunk) const {
    Fetched fetched = {};
    if constexpr (kAhead) {
      if (resident_) return fetched;
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) {
        if (Has(j)) fetched.vectors[j] = LoadRaw8(AddressOf(chunk, j));
      }
    }
    return fetched;
  }
  // `turn` says which of the two places the chunk takes.
  __device__ __forceinline__ void Store(const Fetched& fetched, int chunk, int turn) const {
    if (resident_) return;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (!Has(j)) continue;
      StoreRaw8(kAhead ? fetched.vectors[kAhead ? j : 0] : LoadRaw8(AddressOf(chunk, j)),
                At(chunk, turn) + PlaceOf(j));
    }
  }

  __device__ __forceinline__ void StartCopies(int chunk) const {
    if (resident_) return;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (Has(j)) StartCopy8(AddressOf(chunk, j), true, At(chunk, chunk % 2) + PlaceOf(j));
    }
  }

  // Returns the place of a chunk. If the panel is not resident, there are two places, and `turn`
  // says in which one the chunk is.
  __device__ __forceinline__ T* At(int chunk, int turn) const {
    if (resident_) {
      return shared_ + chunk * kChunk * (kLayout == MatrixLayout::kByRow ? stride_ : 1);
    }
    constexpr int kLines = kLayout == MatrixLayout::kByRow ? kChunk : kColumns;
    return shared_ + turn * (kLines * stride_);
  }

 private:
  __device__ __forceinline__ const T* AddressOf(int chunk, int j) const {
    return packed_ + (static_cast<int64_t>(chunk) * kVectors + j * kTileThreads) * 8;
  }
  // The place in a chunk of the thread's vector number j.
  __device__ __forceinline__ int PlaceOf(int j) const {
    constexpr int kLine = (kLayout == MatrixLayout::kByRow ? kColumns : kChunk) / 8;
    const int i = static_cast<int>(threadIdx.x) + j * kTileThreads;
    return i / kLine * stride_ + i % kLine * 8;
  }
  // Whether the thread has a vector number j of a chunk.
  static __device__ __forceinline__ bool Has(int j) {
    return kVectors % kTileThreads == 0 || threadIdx.x + j * kTileThreads < kVectors;
  }

  const bool resident_;
  const int stride_;
  const T* packed_;
  T* const shared_;
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_PANEL_CUH_
