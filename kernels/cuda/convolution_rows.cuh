// Brings the left operand of a convolution that is computed as a matrix product (implicit im2col:
// the operand exists only in shared memory, a chunk at a time).
//   Forward: a row per output pixel, a column per (tap, input channel); elements are values of x.
//   Input gradient: a row per input pixel, a column per (tap, output channel); elements are of dy.
// A tap has a multiple of 8 columns; those beyond its channels are zeros. So eight columns from a
// multiple of 8 on always belong to one tap.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_ROWS_CUH_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_ROWS_CUH_

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/convolution_sources.cuh"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/tile_math.cuh"

namespace pushpull::PUSHPULL_CUDA {

struct ConvolutionGeometry {
  int in_h, in_w, in_c, out_h, out_w, out_c;
  int kernel, stride, pad_top, pad_left;
  int in_rows, out_rows;  // pixels of all samples
  int in_columns;         // kernel * kernel * channels of x
  Divisor by_in_w, by_in_pixels, by_out_w, by_out_pixels, by_kernel, by_stride;

  explicit ConvolutionGeometry(const ConvolutionShape& s)
      : in_h(static_cast<int>(s.in.h)),
        in_w(static_cast<int>(s.in.w)),
        in_c(static_cast<int>(s.in.c)),
        out_h(static_cast<int>(s.out_h())),
        out_w(static_cast<int>(s.out_w())),
        out_c(static_cast<int>(s.out_channels)),
        kernel(s.kernel),
        stride(s.stride),
        pad_top(s.padding.top),
        pad_left(s.padding.left),
        in_rows(static_cast<int>(s.in.rows())),
        out_rows(static_cast<int>(s.out().rows())),
        in_columns(s.kernel * s.kernel * in_c),
        by_in_w(in_w),
        by_in_pixels(in_h * in_w),
        by_out_w(out_w),
        by_out_pixels(out_h * out_w),
        by_kernel(kernel),
        by_stride(stride) {}

  // The columns of the left operand of a product whose taps have so many channels.
  PUSHPULL_HOST_DEVICE int Reduction(int channels) const {
    return kernel * kernel * PaddedChannels(channels);
  }
};

// How eight neighbouring columns of a row are read.
enum class Access {
  kPointwise,  // 1x1, stride 1, no padding, channels a multiple of 8: the tensor is the operand
  kVector,     // channels a multiple of 8: one vector of one tap
  kPadded,     // any other number of channels: the numbers of one tap that there are
};

// Whether rows are copied to shared memory as they are, beside the threads, two chunks ahead. There
// are three tiles of rows then.
template <typename T, Access kAccess>
inline constexpr bool kCopiesRows = kAccess == Access::kVector && sizeof(T) == 2;
template <typename T, Access kAccess>
inline constexpr int kRowTiles = kCopiesRows<T, kAccess> ? 3 : 2;

// The pixels that a pixel meets by a tap: Start is computed once per pixel, Find for each tap. The
// conditions are joined without branches.
struct Start {
  int h, w;
};

// Find returns the input pixel that tap (kh, kw) of an output pixel reads; false if it is padding.
struct ForwardTaps {
  static constexpr bool kBackward = false;
  static __device__ __forceinline__ Start StartOf(const ConvolutionGeometry& g, int h, int w) {
    return {h * g.stride - g.pad_top, w * g.stride - g.pad_left};
  }
  static __device__ __forceinline__ bool Find(const ConvolutionGeometry& g, Start start, int kh,
                                              int kw, int* from_h, int* from_w) {
    *from_h = start.h + kh;
    *from_w = start.w + kw;
    return (static_cast<unsigned>(*from_h) < static_cast<unsigned>(g.in_h)) &
           (static_cast<unsigned>(*from_w) < static_cast<unsigned>(g.in_w));
  }
};

// Find returns the output pixel that reads an input pixel by tap (kh, kw); false if there is none.
struct BackwardTaps {
  static constexpr bool kBackward = true;
  static __device__ __forceinline__ Start StartOf(const ConvolutionGeometry& g, int h, int w) {
    return {h + g.pad_top, w + g.pad_left};
  }
  static __device__ __forceinline__ bool Find(const ConvolutionGeometry& g, Start start, int kh,
                                              int kw, int* from_h, int* from_w) {
    *from_h = start.h - kh;
    *from_w = start.w - kw;
    bool found = (*from_h | *from_w) >= 0;
    if (g.stride > 1) {  // the quotients of negative numbers are not used
      int rest_h, rest_w;
      *from_h = g.by_stride.Quotient(*from_h, &rest_h);
      *from_w = g.by_stride.Quotient(*from_w, &rest_w);
      found &= (rest_h | rest_w) == 0;
    }
    return found & (static_cast<unsigned>(*from_h) < static_cast<unsigned>(g.out_h)) &
           (static_cast<unsigned>(*from_w) < static_cast<unsigned>(g.out_w));
  }
};

// Brings chunks of the left operand to shared memory, [kTileRows][kChunk] by row, in two stages:
// Fetch loads raw numbers into registers while the previous chunk is multiplied, Store forms the
// elements from them. A thread handles the same eight columns of two rows. Only pointwise
// convolutions form their elements here; those of the others, which are read once per tap, must be
// plain numbers in memory. Whole vectors of them need no registers: where kCopies is true,
// StartCopies takes the place of both.
template <typename T, Access kAccess, typename Source, typename Taps>
class RowLoader {
 public:
  static constexpr int kStride = kChunk + kLinePadding<T>;
  static constexpr int kRowsPerThread = kTileRows * kChunk / 8 / kTileThreads;
  static constexpr bool kForms = kAccess == Access::kPointwise;
  static constexpr bool kCopies = kCopiesRows<T, kAccess>;

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
        if constexpr (kAccess == Access::kPadded) {
          fetched.first[i] = LoadRaw8(from, source_.channels - channel);
        } else {
          fetched.first[i] = LoadRaw8(from);
        }
      }
    }
    return fetched;
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
  // false if the numbers are zeros.
  __device__ __forceinline__ bool Find(int i, int column, int kh, int kw, int* row) const {
    int h, w;
    const bool found = Taps::Find(g_, start_[i], kh, kw, &h, &w);
    *row = (base_[i] + h) * (Taps::kBackward ? g_.out_w : g_.in_w) + w;
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
