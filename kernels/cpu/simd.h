// How the fast kernels read and write vectors of channels (vectors.h), and what else they share.
// Pure functions and plain values. A kernel that uses them is compiled once per instruction set
// (docs/decisions/0028-instruction-sets-at-run-time.md): it includes this header after Highway's
// foreach_target.h, and has its code in HWY_NAMESPACE. The guard lets the header in once for each.
#if defined(PUSHPULL_KERNELS_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_SIMD_H_
#undef PUSHPULL_KERNELS_CPU_SIMD_H_
#else
#define PUSHPULL_KERNELS_CPU_SIMD_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/packed_numbers.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/vectors.h"
#include "kernels/operators.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

// Accesses to a whole vector in memory, or to its first lanes if the channels end inside it. The
// other lanes are read as zeros and not written. Kernels are templates over these two types, so
// only the last vector of a row pays for the mask.
//
// Store rounds to the type of the memory; StoreExact is for what is rounded already. PrefetchStore
// brings memory that will be stored to into the cache; it may be beyond the end of a tensor.
//
// LoadPadded and StorePadded are for memory of our own, whose rows are padded to a multiple of
// kPanelAlignment (8) floats. They need no mask unless a vector is longer than that.
struct FullLanes {
  template <typename T>
  HWY_INLINE Vector Load(const T* p) const {
    return LoadWhole(p);
  }
  HWY_INLINE void Store(float* p, Vector v) const { hn::StoreU(v, Tag(), p); }
  HWY_INLINE void Store(Bfloat16* p, Vector v) const {
    hn::StoreU(RoundedHalves(v), HalfBits(), BitsOf(p));
  }
  HWY_INLINE void StoreExact(float* p, Vector v) const { Store(p, v); }
  HWY_INLINE void StoreExact(Bfloat16* p, Vector v) const {
    hn::StoreU(UpperHalves(v), HalfBits(), BitsOf(p));
  }
  template <typename T>
  HWY_INLINE void PrefetchStore(const T* p) const {
    hwy::Prefetch(p);
  }
  HWY_INLINE Vector LoadPadded(const float* p) const { return Load(p); }
  template <typename T>
  HWY_INLINE void StorePadded(T* p, Vector v) const {
    Store(p, v);
  }
  HWY_INLINE void StorePadded(BfloatAsFloat* p, Vector v) const {
    StoreExact(FloatsOf(p), Rounded<Bfloat16>(v));
  }
};
class SomeLanes {
 public:
  // 0 <= lanes < kVectorLanes; 0 only for a vector that is all padding
  HWY_INLINE explicit SomeLanes(int64_t lanes)
      : lanes_(lanes),
        mask_(hn::FirstN(Tag(), lanes)),
        padded_mask_(hn::FirstN(Tag(), PadToPanel(lanes))) {}

  HWY_INLINE Vector Load(const float* p) const {
    if constexpr (kMasksFloats) return hn::MaskedLoad(mask_, Tag(), p);
    return LoadFirst(Tag(), p, lanes_);
  }
  HWY_INLINE Vector Load(const Bfloat16* p) const { return Widen(LoadHalves(BitsOf(p), lanes_)); }
  HWY_INLINE void Store(float* p, Vector v) const { StoreExact(p, v); }
  HWY_INLINE void Store(Bfloat16* p, Vector v) const {
    StoreHalves(RoundedHalves(v), lanes_, BitsOf(p));
  }
  HWY_INLINE void StoreExact(float* p, Vector v) const {
    if constexpr (kMasksFloats) return hn::BlendedStore(v, mask_, Tag(), p);
    StoreFirst(Tag(), v, lanes_, p);
  }
  HWY_INLINE void StoreExact(Bfloat16* p, Vector v) const {
    StoreHalves(UpperHalves(v), lanes_, BitsOf(p));
  }
  template <typename T>
  HWY_INLINE void PrefetchStore(const T* p) const {
    hwy::Prefetch(p);
  }
  HWY_INLINE Vector LoadPadded(const float* p) const {
    if constexpr (kVectorLanes <= kPanelAlignment) return LoadWhole(p);
    return hn::MaskedLoad(padded_mask_, Tag(), p);
  }
  HWY_INLINE void StorePadded(float* p, Vector v) const {
    if constexpr (kVectorLanes <= kPanelAlignment) return hn::StoreU(v, Tag(), p);
    hn::BlendedStore(v, padded_mask_, Tag(), p);
  }
  HWY_INLINE void StorePadded(BfloatAsFloat* p, Vector v) const {
    StorePadded(FloatsOf(p), Rounded<Bfloat16>(v));
  }
  HWY_INLINE void StorePadded(Bfloat16* p, Vector v) const {
    const auto halves = RoundedHalves(v);
    if constexpr (kVectorLanes <= kPanelAlignment) return hn::StoreU(halves, HalfBits(), BitsOf(p));
    StoreHalves(halves, PadToPanel(lanes_), BitsOf(p));
  }

 private:
  // Highway's masked access touches the whole vector where the CPU has no such instruction: for
  // 16-bit numbers without AVX-512, for floats also without AVX2.
  static constexpr bool kMasksFloats = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2;

  template <typename D, typename T>
  static HWY_INLINE hn::Vec<D> LoadFirst(D d, const T* p, int64_t count) {
    HWY_ALIGN T numbers[kVectorLanes] = {};
    std::memcpy(numbers, p, count * sizeof(T));
    return hn::Load(d, numbers);
  }
  template <typename D, typename T>
  static HWY_INLINE void StoreFirst(D d, hn::Vec<D> v, int64_t count, T* p) {
    HWY_ALIGN T numbers[kVectorLanes];
    hn::Store(v, d, numbers);
    std::memcpy(p, numbers, count * sizeof(T));
  }
  static HWY_INLINE hn::Vec<HalfBits> LoadHalves(const uint16_t* p, int64_t count) {
    if constexpr (HWY_TARGET == HWY_AVX3) {
      return hn::MaskedLoad(hn::FirstN(HalfBits(), count), HalfBits(), p);
    }
    return LoadFirst(HalfBits(), p, count);
  }
  static HWY_INLINE void StoreHalves(hn::Vec<HalfBits> v, int64_t count, uint16_t* p) {
    if constexpr (HWY_TARGET == HWY_AVX3) {
      return hn::BlendedStore(v, hn::FirstN(HalfBits(), count), HalfBits(), p);
    }
    StoreFirst(HalfBits(), v, count, p);
  }

  int64_t lanes_;
  hn::Mask<Tag> mask_;
  hn::Mask<Tag> padded_mask_;
};

// Calls f(first channel, lanes) for each vector of the channels [begin, end). Where a vector is
// shorter than kPanelAlignment, also for the padding of the last kPanelAlignment channels, since
// what writes rows of our own memory writes their padding too.
template <typename F>
HWY_INLINE void ForEachVector(int64_t begin, int64_t end, F f) {
  int64_t c = begin;
  for (; c + kVectorLanes <= end; c += kVectorLanes) f(c, FullLanes{});
  if constexpr (kVectorLanes < kPanelAlignment) {
    const int64_t padded_end = begin + PadToPanel(end - begin);
    for (; c < padded_end; c += kVectorLanes) f(c, SomeLanes(end > c ? end - c : 0));
  } else if (c < end) {
    f(c, SomeLanes(end - c));
  }
}

// The greater or the lesser of two numbers; b if one is a NaN, as x86 does it. Other CPUs would
// return the number.
HWY_INLINE Vector MaxOrSecond(Vector a, Vector b) {
#if HWY_ARCH_X86
  return hn::Max(a, b);
#else
  return hn::IfThenElse(hn::Gt(a, b), a, b);
#endif
}
HWY_INLINE Vector MinOrSecond(Vector a, Vector b) {
#if HWY_ARCH_X86
  return hn::Min(a, b);
#else
  return hn::IfThenElse(hn::Lt(a, b), a, b);
#endif
}

// An activation as a clamp: value = min(max(z, low), high). The slope is 1 strictly inside the
// bounds. A NaN passes through: min and max return the second operand if one is a NaN, and a
// comparison with a NaN is false. A bound that an activation lacks is a NaN for the same reason, so
// that an infinite z is inside too.
struct Bounds {
  HWY_INLINE explicit Bounds(FusedActivation activation) {
    const float none = std::numeric_limits<float>::quiet_NaN();
    low = hn::Set(Tag(), activation == FusedActivation::kNone ? none : 0.0f);
    high = hn::Set(Tag(), activation == FusedActivation::kRelu6 ? 6.0f : none);
  }
  HWY_INLINE Vector Clamp(Vector z) const { return MinOrSecond(high, MaxOrSecond(low, z)); }
  // The gradient where the slope at z is 1, else 0.
  HWY_INLINE Vector Slope(Vector z, Vector gradient) const {
    return hn::IfThenZeroElse(hn::Or(hn::Le(z, low), hn::Ge(z, high)), gradient);
  }
  Vector low, high;
};

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_SIMD_H_
