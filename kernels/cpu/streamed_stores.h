// Stores that bypass the caches, for tensors that are too large to be found there by whoever reads
// them next. A store to a line that is not in the cache first reads the line from memory. A
// streamed store of a whole line does not, which halves the traffic of the store. The guard lets
// this header in once per instruction set, as that of simd.h.
#if defined(PUSHPULL_KERNELS_CPU_STREAMED_STORES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_STREAMED_STORES_H_
#undef PUSHPULL_KERNELS_CPU_STREAMED_STORES_H_
#else
#define PUSHPULL_KERNELS_CPU_STREAMED_STORES_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

constexpr int64_t kLineBytes = 64;
template <typename T>
constexpr int64_t kLine = kLineBytes / sizeof(T);  // numbers in a line
template <typename T>
constexpr int kLineVectors = static_cast<int>(kLine<T> / kVectorLanes);
// A kernel keeps some registers for each vector of a line, so more than two would not fit. A line
// is one or two vectors for floats with AVX2 and AVX-512, and for Bfloat16 with AVX-512.
template <typename T>
constexpr bool kCanStream = (HWY_ARCH_X86 != 0) && kLineVectors<T> <= 2;

// Streaming pays from about this size on: a quarter of the third-level cache of a server's CPU,
// which other tensors and other processes use as well.
constexpr int64_t kStreamedBytes = 8 << 20;

// Whether stores to tensor[rows, channels] should be streamed. If so, its rows begin with a line.
template <typename T>
HWY_INLINE bool Streams(const T* tensor, int64_t rows, int64_t channels) {
  return kCanStream<T> && channels % kLine<T> == 0 &&
         reinterpret_cast<uintptr_t>(tensor) % kLineBytes == 0 &&
         rows * channels >= kStreamedBytes / static_cast<int64_t>(sizeof(T));
}

// As FullLanes, for a line of such a tensor. All vectors of the line must be stored, one right
// after the other. Other threads see the stores after the ThreadPool's loop that made them.
struct StreamedLanes : FullLanes {
  // Does nothing, because a streamed store does not read its line.
  template <typename T>
  HWY_INLINE void PrefetchStore(const T*) const {}
  HWY_INLINE void StoreExact(float* p, Vector v) const { hn::Stream(v, Tag(), p); }
  HWY_INLINE void StoreExact(Bfloat16* p, Vector v) const {
    hn::Stream(UpperHalves(v), HalfBits(), BitsOf(p));
  }
};

// As ForEachVector, for kernels that store to a tensor of T: calls f(first channel, lanes, count),
// where `count`, a std::integral_constant, is that of the vectors. If the tensor `streams`, each
// whole line of the channels [begin, end) is one call with StreamedLanes. All else is one vector
// per call.
template <typename T, typename F>
HWY_INLINE void ForEachStore(bool streams, int64_t begin, int64_t end, F f) {
  int64_t c = begin;
  if constexpr (kCanStream<T>) {
    if (streams && begin % kLine<T> == 0) {
      for (; c + kLine<T> <= end; c += kLine<T>) {
        f(c, StreamedLanes{}, std::integral_constant<int, kLineVectors<T>>());
      }
    }
  }
  ForEachVector(c, end, [&](int64_t from, auto lanes) HWY_ATTR {
    f(from, lanes, std::integral_constant<int, 1>());
  });
}

// Copies `count` numbers, which are whole lines, to the beginning of a line.
template <typename T>
HWY_INLINE void StreamLines(const T* from, int64_t count, T* to) {
  const hn::CappedTag<uint8_t, kLineBytes> bytes;
  const auto* source = reinterpret_cast<const uint8_t*>(from);
  auto* target = reinterpret_cast<uint8_t*>(to);
  const int64_t end = count * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < end; i += static_cast<int64_t>(hn::Lanes(bytes))) {
    hn::Stream(hn::LoadU(bytes, source + i), bytes, target + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_STREAMED_STORES_H_
