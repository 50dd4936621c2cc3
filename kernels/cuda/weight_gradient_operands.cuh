// Brings the operands of a convolution's weight gradient, the value and dy, to shared memory:
// chunks of pixels, in which neighbouring columns are neighbouring channels.
#ifndef PUSHPULL_KERNELS_CUDA_WEIGHT_GRADIENT_OPERANDS_CUH_
#define PUSHPULL_KERNELS_CUDA_WEIGHT_GRADIENT_OPERANDS_CUH_

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/convolution_geometry.cuh"
#include "kernels/cuda/convolution_sources.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/raw_ring.cuh"
#include "kernels/cuda/tile_math.cuh"

namespace pushpull::PUSHPULL_CUDA {

// How a weight gradient gets its operands.
enum class WeightGradientKind {
  kPointwise,  // both are formed from raw numbers where that is needed
  kFewTaps,    // the value is plain numbers; dy, which is read once or twice, is formed
  kTaps,       // both are plain numbers
};

// Deals out the vectors of eight columns of a chunk to threads, so that a thread meets the same
// columns in every pixel. Neighbouring threads take neighbouring columns.
template <int kColumns>
struct ChunkPlace {
  static constexpr int kPixelsAtOnce = kTileThreads / (kColumns / 8);
  static constexpr int kPixels = kChunk / kPixelsAtOnce;  // of a thread
  static __device__ __forceinline__ int Column() { return threadIdx.x % (kColumns / 8) * 8; }
  static __device__ __forceinline__ int Pixel(int i) {
    return threadIdx.x / (kColumns / 8) + i * kPixelsAtOnce;
  }
};

// Brings chunks of one operand to shared memory, [kChunk pixels][kColumns]. A thread handles the
// same eight columns for all pixels, so it keeps their coefficients in registers. Start begins to
// copy: raw numbers to a ring, from which StoreRaw forms the elements (kForms), or plain numbers to
// their places. For float, Fetch loads numbers into registers, and Store forms elements or stores
// the numbers as they are. Plain numbers of columns that do not exist are not written.
//
// Columns says which columns these are (ValueColumns, GradientColumns):
//   source()            where the numbers are, and how elements are formed
//   exist()             whether the thread's eight columns exist
//   OffsetOf(pixel)     the place of their first number in source().first() and second()
//   channel()           their first channel
template <typename T, typename Columns, bool kForms>
class ChunkLoader {
 public:
  static constexpr int kStride = Columns::kColumns + kLinePadding<T>;
  static constexpr int kTileBytes = kChunk * kStride * static_cast<int>(sizeof(T));
  using Place = ChunkPlace<Columns::kColumns>;
  static constexpr int kPixels = Place::kPixels;
  struct Fetched {
    Raw8<T> first[kPixels];
    Raw8<T> second[kForms ? kPixels : 1];
    bool present[kPixels];
  };

  template <typename Source>
  __device__ __forceinline__ ChunkLoader(const ConvolutionGeometry& geometry, const Source& source)
      : columns_(geometry, source) {
    if constexpr (kForms) columns_.source().Coefficients8(columns_.channel(), k_);
  }

  // The vectors of a slot of the ring for each thread.
  template <typename Source>
  static PUSHPULL_HOST_DEVICE int RingVectors(const Source& source) {
    return !kForms ? 0 : source.second() != nullptr ? 2 * kPixels : kPixels;
  }

  // Starts the copies for the chunk of pixels [first, end), at most kChunk: to the ring, vectors
  // from `vector` on, or to the tile.
  __device__ __forceinline__ void Start(int first, int end, const RawRing& ring, int slot,
                                        int vector, T* tile) const {
    if constexpr (!kForms) {
      if (!columns_.exist()) return;
    }
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int pixel = first + Place::Pixel(i);
      bool present = pixel < end && columns_.exist();
      const int64_t offset = columns_.OffsetOf(pixel, &present);
      if constexpr (kForms) {
        ring.Start(columns_.source().first() + offset, present, slot, vector + i);
        if (columns_.source().second() != nullptr) {
          ring.Start(columns_.source().second() + offset, present, slot, vector + kPixels + i);
        }
      } else {
        StartCopy8(columns_.source().first() + offset, present, To(tile, i));
      }
    }
  }
  // Forms the elements of a chunk whose raw numbers have arrived.
  __device__ __forceinline__ void StoreRaw(const RawRing& ring, int slot, int vector, int first,
                                           int end, T* tile) const {
    if constexpr (kForms) {
      Fetched fetched = {};
#pragma unroll
      for (int i = 0; i < kPixels; ++i) {
        fetched.present[i] = first + Place::Pixel(i) < end && columns_.exist();
        fetched.first[i] = ring.Read(slot, vector + i);
        if (columns_.source().second() != nullptr) {
          fetched.second[i] = ring.Read(slot, vector + kPixels + i);
        }
      }
      Store(fetched, tile);
    }
  }

  __device__ __forceinline__ Fetched Fetch(int first, int end) const {
    Fetched fetched;
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      const int pixel = first + Place::Pixel(i);
      fetched.present[i] = pixel < end && columns_.exist();
      const int64_t offset = columns_.OffsetOf(pixel, &fetched.present[i]);
      if (!fetched.present[i]) continue;
      fetched.first[i] = LoadRaw8(columns_.source().first() + offset);
      if constexpr (kForms) {
        if (columns_.source().second() == nullptr) continue;
        fetched.second[i] = LoadRaw8(columns_.source().second() + offset);
      }
    }
    return fetched;
  }
  __device__ __forceinline__ void Store(const Fetched& fetched, T* tile) const {
#pragma unroll
    for (int i = 0; i < kPixels; ++i) {
      if (!kForms || columns_.source().plain()) {
        StoreRaw8(fetched.present[i] ? fetched.first[i] : Raw8<T>{}, To(tile, i));
      } else {
        float values[8] = {};
        if constexpr (kForms) {
          if (fetched.present[i]) {
            columns_.source().Form8(fetched.first[i], fetched.second[i], k_, values);
          }
        }
        Store8(values, To(tile, i));
      }
    }
  }

 private:
  static __device__ __forceinline__ T* To(T* tile, int i) {
    return tile + Place::Pixel(i) * kStride + Place::Column();
  }

  Columns columns_;
  float k_[Columns::kCoefficients][8];
};

// The value, whose columns are q = (tap, input channel).
template <typename T, Access kAccess>
class ValueColumns {
 public:
  static constexpr int kColumns = kTileRows;
  static constexpr int kCoefficients = ValueSource<T>::kCoefficients;

  __device__ __forceinline__ ValueColumns(const ConvolutionGeometry& geometry,
                                          const ValueSource<T>& source)
      : g_(geometry), source_(source) {
    const int column = blockIdx.x * kTileRows + ChunkPlace<kColumns>::Column();
    const int tap = source.padded.Quotient(column, &channel_);
    kh_ = g_.by_kernel.Quotient(tap, &kw_);
    KeepInRegister(&channel_);
    KeepInRegister(&kh_);
    KeepInRegister(&kw_);
  }

  __device__ __forceinline__ const ValueSource<T>& source() const { return source_; }
  __device__ __forceinline__ bool exist() const { return kh_ < g_.kernel; }
  __device__ __forceinline__ int channel() const { return channel_; }
  // The place of what the columns read for an output pixel; sets *present to false if that is
  // padding. If it is not present, the place is 0.
  __device__ __forceinline__ int64_t OffsetOf(int pixel, bool* present) const {
    int row = pixel;
    if constexpr (kAccess == Access::kTaps) {
      int place, w, from_h, from_w;
      const int sample = g_.by_out_pixels.Quotient(pixel, &place);
      const int h = g_.by_out_w.Quotient(place, &w);
      const Start start = ForwardTaps::StartOf(g_, h, w);
      *present &= ForwardTaps::Find(g_, start, kh_, kw_, &from_h, &from_w);
      row = (sample * g_.in_h + from_h) * g_.in_w + from_w;
    }
    return *present ? static_cast<int64_t>(row) * source_.channels + channel_ : 0;
  }

 private:
  const ConvolutionGeometry& g_;
  const ValueSource<T>& source_;
  int channel_, kh_, kw_;
};

// dy, whose columns are output channels.
template <typename T, int kTileColumns>
class GradientColumns {
 public:
  static constexpr int kColumns = kTileColumns;
  static constexpr int kCoefficients = GradientSource<T>::kCoefficients;

  __device__ __forceinline__ GradientColumns(const ConvolutionGeometry&,
                                             const GradientSource<T>& source)
      : source_(source), column_(blockIdx.y * kColumns + ChunkPlace<kColumns>::Column()) {}

  __device__ __forceinline__ const GradientSource<T>& source() const { return source_; }
  __device__ __forceinline__ bool exist() const { return column_ < source_.channels; }
  __device__ __forceinline__ int channel() const { return column_; }
  __device__ __forceinline__ int64_t OffsetOf(int pixel, const bool* present) const {
    return *present ? static_cast<int64_t>(pixel) * source_.channels + column_ : 0;
  }

 private:
  const GradientSource<T>& source_;
  const int column_;
};

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_WEIGHT_GRADIENT_OPERANDS_CUH_
