// Forms the left operand of a convolution that is computed as a matrix product (implicit im2col:
// the operand exists only in shared memory, a chunk at a time).
//   Forward: a row per output pixel, a column per (tap, input channel); elements are values of x.
//   Input gradient: a row per input pixel, a column per (tap, output channel); elements are of dy.
// A tap has a multiple of 8 columns; those beyond its channels are zeros. So eight columns from a
// multiple of 8 on always belong to one tap.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_ROWS_CUH_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_ROWS_CUH_

#include "kernels/cuda/convolution_sources.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/tile_math.cuh"

namespace pushpull::PUSHPULL_CUDA {

struct ConvolutionGeometry {
  int in_h, in_w, in_c, out_h, out_w, out_c;
  int kernel, stride, pad_top, pad_left;
  int in_rows, out_rows;  // pixels of all samples
  int in_columns;         // kernel * kernel * channels of x

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
        in_columns(s.kernel * s.kernel * in_c) {}

  // The columns of the left operand of a product whose taps have so many channels.
  PUSHPULL_HOST_DEVICE int Reduction(int channels) const {
    return kernel * kernel * PaddedChannels(channels);
  }
};

// How eight neighbouring columns of a row are read.
enum class Access {
  kPointwise,  // 1x1, stride 1, no padding, channels a multiple of 8: the tensor is the operand
  kVector,     // channels a multiple of 8: one vector of one tap
  kPadded,     // any other number of channels: the numbers of one tap that there are, one by one
  kScalar,     // weight gradients of such a number: each number is located by itself
};

// Finds the input pixel that tap (kh, kw) of an output pixel reads; false if it is padding.
struct ForwardTaps {
  static constexpr bool kBackward = false;
  static __device__ __forceinline__ bool Find(const ConvolutionGeometry& g, int h, int w, int kh,
                                              int kw, int* from_h, int* from_w) {
    *from_h = h * g.stride + kh - g.pad_top;
    *from_w = w * g.stride + kw - g.pad_left;
    return *from_h >= 0 && *from_h < g.in_h && *from_w >= 0 && *from_w < g.in_w;
  }
};

// Finds the output pixel that reads an input pixel by tap (kh, kw); false if there is none.
struct BackwardTaps {
  static constexpr bool kBackward = true;
  static __device__ __forceinline__ bool Find(const ConvolutionGeometry& g, int h, int w, int kh,
                                              int kw, int* from_h, int* from_w) {
    const int th = h + g.pad_top - kh, tw = w + g.pad_left - kw;
    *from_h = th / g.stride;
    *from_w = tw / g.stride;
    return th >= 0 && tw >= 0 && *from_h * g.stride == th && *from_w * g.stride == tw &&
           *from_h < g.out_h && *from_w < g.out_w;
  }
};

// Brings chunks of the left operand to shared memory, [kTileRows][kChunk] by row, in two stages:
// Fetch loads raw numbers into registers while the previous chunk is multiplied, Store forms the
// elements from them. A thread handles the same eight columns of two rows.
template <typename T, Access kAccess, typename Source, typename Taps>
class RowLoader {
 public:
  static constexpr int kStride = kChunk + kLinePadding<T>;
  static constexpr int kRowsPerThread = kTileRows * kChunk / 8 / kTileThreads;

  struct Fetched {
    Raw8<T> first[kRowsPerThread], second[kRowsPerThread];
    bool present[kRowsPerThread];
  };

  // `coefficients` are in shared memory or, if in_shared is false, in device memory.
  __device__ __forceinline__ RowLoader(const ConvolutionGeometry& geometry, const Source& source,
                                       const float* coefficients, bool in_shared)
      : g_(geometry),
        source_(source),
        padded_(PaddedChannels(source.channels)),
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
      if constexpr (kAccess == Access::kPointwise) {
        base_[i] = row;
      } else {
        const int h = Taps::kBackward ? g_.in_h : g_.out_h;
        const int w = Taps::kBackward ? g_.in_w : g_.out_w;
        base_[i] = row / (h * w);
        h_[i] = row / w % h;
        w_[i] = row % w;
      }
    }
  }

  __device__ __forceinline__ Fetched Fetch(int first_column) const {
    Fetched fetched;
    const int column = first_column + ColumnOf();
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      int64_t offset = 0;
      int count = 8;
      fetched.present[i] = present_[i] && column < columns_ && Locate(i, column, &offset, &count);
      if (!fetched.present[i]) continue;
      fetched.first[i] = Load(source_.first() + offset, count);
      if (source_.second() != nullptr) {
        fetched.second[i] = Load(source_.second() + offset, count);
      }
    }
    return fetched;
  }

  __device__ __forceinline__ void Store(const Fetched& fetched, int first_column, T* tile) const {
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      float values[8] = {};
      if (fetched.present[i]) {
        float second[8] = {};
        Unpack8(fetched.first[i], values);
        if (source_.second() != nullptr) Unpack8(fetched.second[i], second);
        float k[Source::kCoefficients][8];
        LoadCoefficients(first_column + ColumnOf(), k);
        source_.Form8(values, second, k);
      }
      Store8(values, tile + RowOf(i) * kStride + ColumnOf());
    }
  }

 private:
  static __device__ __forceinline__ int RowOf(int i) {
    return threadIdx.x / (kChunk / 8) + i * (kTileThreads / (kChunk / 8));
  }
  static __device__ __forceinline__ int ColumnOf() { return threadIdx.x % (kChunk / 8) * 8; }

  static __device__ __forceinline__ Raw8<T> Load(const T* from, int count) {
    if constexpr (kAccess == Access::kPadded) return LoadRaw8(from, count);
    return LoadRaw8(from);
  }

  // The coefficients of eight neighbouring columns. A pointwise convolution has a single tap.
  __device__ __forceinline__ void LoadCoefficients(int column,
                                                   float k[Source::kCoefficients][8]) const {
    const int channel = kAccess == Access::kPointwise ? column : column % padded_;
#pragma unroll
    for (int q = 0; q < Source::kCoefficients; ++q) {
      Load8From(in_shared_, coefficients_ + q * padded_ + channel, k[q]);
    }
  }

  // Computes the offset of eight columns in the tensor, and how many of them there are; false if
  // they are padding.
  __device__ __forceinline__ bool Locate(int i, int column, int64_t* offset, int* count) const {
    if constexpr (kAccess == Access::kPointwise) {
      *offset = static_cast<int64_t>(base_[i]) * source_.channels + column;
      return true;
    } else {
      const int tap = column / padded_, channel = column % padded_;
      int from_h, from_w;
      if (!Taps::Find(g_, h_[i], w_[i], tap / g_.kernel, tap % g_.kernel, &from_h, &from_w)) {
        return false;
      }
      const int h = Taps::kBackward ? g_.out_h : g_.in_h;
      const int w = Taps::kBackward ? g_.out_w : g_.in_w;
      *offset =
          ((static_cast<int64_t>(base_[i]) * h + from_h) * w + from_w) * source_.channels + channel;
      *count = min(source_.channels - channel, 8);
      return true;
    }
  }

  const ConvolutionGeometry& g_;
  const Source& source_;
  const int padded_, columns_;  // of a tap, and of all taps
  const float* const coefficients_;
  const bool in_shared_;
  bool present_[kRowsPerThread];
  int base_[kRowsPerThread];  // kPointwise: the row; else its sample
  int h_[kRowsPerThread], w_[kRowsPerThread];
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_ROWS_CUH_
