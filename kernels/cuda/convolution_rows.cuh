// Brings the left operand of a convolution that is computed as a matrix product (implicit im2col:
// the operand exists only in shared memory, a chunk at a time).
//   Forward: a row per output pixel, a column per (tap, input channel); elements are values of x.
//   Input gradient: a row per input pixel, a column per (tap, output channel); elements are of dy.
// A tap has a multiple of 8 columns; those beyond its channels are zeros. So eight columns from a
// multiple of 8 on always belong to one tap.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_ROWS_CUH_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_ROWS_CUH_

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/convolution_geometry.cuh"
#include "kernels/cuda/convolution_sources.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/raw_ring.cuh"
#include "kernels/cuda/tile_math.cuh"

namespace pushpull::PUSHPULL_CUDA {

// True if rows are copied to shared memory as they are, beside the threads, two chunks ahead. There
// are three tiles of rows then.
template <typename T, Access kAccess>
inline constexpr bool kCopiesRows = kAccess == Access::kTaps && sizeof(T) == 2;
// True if rows are formed from raw numbers that come through a ring.
template <typename T, Access kAccess>
inline constexpr bool kRingsRows = kAccess == Access::kPointwise && sizeof(T) == 2;
template <typename T, Access kAccess>
inline constexpr int kRowTiles = kCopiesRows<T, kAccess> ? 3 : 2;

// Brings chunks of the left operand to shared memory, [kTileRows][kChunk] by row. A thread handles
// the same eight columns of two rows. Only pointwise convolutions form their elements here; those
// of the others, which are read once per tap, must be plain numbers in memory. Either
// - StartRaw begins to copy raw numbers to a ring, and StoreRaw forms the elements (kRings); or
// - StartCopies begins to copy plain numbers to their places (kCopies); or, for float,
// - Fetch loads raw numbers into registers, and Store forms the elements.
// Begin says for which rows, except for the ring.
template <typename T, Access kAccess, typename Source, typename Taps>
class RowLoader {
 public:
  static constexpr int kStride = kChunk + kLinePadding<T>;
  static constexpr int kRowsPerThread = kTileRows * kChunk / 8 / kTileThreads;
  static constexpr bool kForms = kAccess == Access::kPointwise;
  static constexpr bool kCopies = kCopiesRows<T, kAccess>;
  static constexpr bool kRings = kRingsRows<T, kAccess>;

  struct Fetched {
    Raw8<T> first[kRowsPerThread];
    Raw8<T> second[kForms ? kRowsPerThread : 1];
    bool present[kForms ? kRowsPerThread : 1];
  };

  // `coefficients` are in shared memory or, if in_shared is false, in device memory.
  __device__ __forceinline__ RowLoader(const ConvolutionGeometry& geometry, const Source& source,
                                       const float* coefficients, bool in_shared)
      : g_(geometry),
        source_(source),
        columns_(geometry.Reduction(source.channels)),
        coefficients_(coefficients),
        in_shared_(in_shared) {}

  __device__ __forceinline__ const Source& source() const { return source_; }
  __device__ __forceinline__ int columns() const { return columns_; }
  __device__ __forceinline__ int rows() const { return Taps::kBackward ? g_.in_rows : g_.out_rows; }

  __device__ __forceinline__ void Begin(int first_row) {
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const int row = first_row + RowOf(i);
      present_[i] = row < rows();
      base_[i] = row;
      if constexpr (!kForms) {
        int pixel, w;
        const int sample =
            (Taps::kBackward ? g_.by_in_pixels : g_.by_out_pixels).Quotient(row, &pixel);
        const int h = (Taps::kBackward ? g_.by_in_w : g_.by_out_w).Quotient(pixel, &w);
        base_[i] = sample * (Taps::kBackward ? g_.out_h : g_.in_h);
        start_[i] = Taps::StartOf(g_, h, w);
        KeepInRegister(&base_[i]);
        KeepInRegister(&start_[i].h);
        KeepInRegister(&start_[i].w);
      }
    }
  }

  __device__ __forceinline__ Fetched Fetch(int first_column) const {
    Fetched fetched;
    const int column = first_column + ColumnOf();
    if constexpr (kForms) {
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) {
        fetched.present[i] = present_[i] && column < columns_;
        if (!fetched.present[i]) continue;
        const int64_t offset = static_cast<int64_t>(base_[i]) * source_.channels + column;
        fetched.first[i] = LoadRaw8(source_.first() + offset);
        if (source_.second() != nullptr) fetched.second[i] = LoadRaw8(source_.second() + offset);
      }
    } else {
      int channel, kw;
      const int tap = source_.padded.Quotient(column, &channel);
      const int kh = g_.by_kernel.Quotient(tap, &kw);
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) {
        fetched.first[i] = Raw8<T>{};
        int row;
        if (!Find(i, column, kh, kw, &row)) continue;
        const T* const from =
            source_.first() + static_cast<int64_t>(row) * source_.channels + channel;
        fetched.first[i] = LoadRaw8(from);
      }
    }
    return fetched;
  }

  // The vectors of a slot of the ring for each thread; 0 if there is no ring.
  static PUSHPULL_HOST_DEVICE int RingVectors(const Source& source) {
    return kRings ? (source.second() != nullptr ? 2 : 1) * kRowsPerThread : 0;
  }
  // Starts to copy the raw numbers of a chunk to a slot.
  __device__ __forceinline__ void StartRaw(int first_row, int first_column, const RawRing& ring,
                                           int slot) const {
    const int column = first_column + ColumnOf();
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const int row = first_row + RowOf(i);
      const bool present = row < rows() && column < columns_;
      const int64_t offset = present ? static_cast<int64_t>(row) * source_.channels + column : 0;
      ring.Start(source_.first() + offset, present, slot, i);
      if (source_.second() != nullptr) {
        ring.Start(source_.second() + offset, present, slot, kRowsPerThread + i);
      }
    }
  }
  // Forms the elements of a chunk from the raw numbers in a slot, which have arrived.
  __device__ __forceinline__ void StoreRaw(const RawRing& ring, int slot, int first_row,
                                           int first_column, T* tile) const {
    Fetched fetched;
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      fetched.present[i] = first_row + RowOf(i) < rows() && first_column + ColumnOf() < columns_;
      fetched.first[i] = ring.Read(slot, i);
      if (source_.second() != nullptr) fetched.second[i] = ring.Read(slot, kRowsPerThread + i);
    }
    Store(fetched, first_column, tile);
  }

  // Starts the copies of a chunk (async_copy.cuh).
  __device__ __forceinline__ void StartCopies(int first_column, T* tile) const {
    const int column = first_column + ColumnOf();
    int channel, kw;
    const int tap = source_.padded.Quotient(column, &channel);
    const int kh = g_.by_kernel.Quotient(tap, &kw);
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      int row;
      const bool found = Find(i, column, kh, kw, &row);
      const int64_t offset = static_cast<int64_t>(found ? row : 0) * source_.channels + channel;
      StartCopy8(source_.first() + offset, found, tile + RowOf(i) * kStride + ColumnOf());
    }
  }

  __device__ __forceinline__ void Store(const Fetched& fetched, int first_column, T* tile) const {
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      T* const to = tile + RowOf(i) * kStride + ColumnOf();
      if constexpr (!kForms) {
        StoreRaw8(fetched.first[i], to);
      } else if (source_.plain()) {
        StoreRaw8(fetched.present[i] ? fetched.first[i] : Raw8<T>{}, to);
      } else {
        float values[8] = {};
        const int column = first_column + ColumnOf();
        if (fetched.present[i]) {
          if (in_shared_) {
            FormRow<true>(fetched, i, column, values);
          } else {
            FormRow<false>(fetched, i, column, values);
          }
        }
        Store8(values, to);
      }
    }
  }

 private:
  static __device__ __forceinline__ int RowOf(int i) {
    return threadIdx.x / (kChunk / 8) + i * (kTileThreads / (kChunk / 8));
  }
  static __device__ __forceinline__ int ColumnOf() { return threadIdx.x % (kChunk / 8) * 8; }

  // Finds the pixel of the source that row i reads by tap (kh, kw), to which `column` belongs;
  // false if the numbers are zeros. Then *row is meaningless; it is computed as an unsigned
  // number, because a signed one must not overflow.
  __device__ __forceinline__ bool Find(int i, int column, int kh, int kw, int* row) const {
    int h, w;
    const bool found = Taps::Find(g_, start_[i], kh, kw, &h, &w);
    const unsigned width = Taps::kBackward ? g_.out_w : g_.in_w;
    *row = static_cast<int>((static_cast<unsigned>(base_[i]) + h) * width + w);
    return found & present_[i] & (column < columns_);
  }

  // Forms eight elements of row i, whose coefficients are in shared or in device memory.
  template <bool kInShared>
  __device__ __forceinline__ void FormRow(const Fetched& fetched, int i, int column,
                                          float values[8]) const {
    float k[Source::kCoefficients][8];
#pragma unroll
    for (int q = 0; q < Source::kCoefficients; ++q) {
      Load8From<kInShared>(coefficients_ + q * PaddedChannels(source_.channels) + column, k[q]);
    }
    source_.Form8(fetched.first[i], fetched.second[i], k, values);
  }

  const ConvolutionGeometry& g_;
  const Source& source_;
  const int columns_;  // of all taps
  const float* const coefficients_;
  const bool in_shared_;
  bool present_[kRowsPerThread];
  int base_[kRowsPerThread];  // pointwise: the row; else the first row of its sample's image
  Start start_[kRowsPerThread];
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_ROWS_CUH_
