// Vectors of 16 floats with AVX-512, of 8 with AVX2, of 4 with SSE4 and NEON: what the fast kernels
// share. Pure functions and plain values. A kernel that uses them is compiled once per instruction
// set (docs/decisions/0028-instruction-sets-at-run-time.md): it includes this header after
// Highway's foreach_target.h, and has its code in HWY_NAMESPACE. The guard lets the header in once
// for each.
#if defined(PUSHPULL_KERNELS_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_SIMD_H_
#undef PUSHPULL_KERNELS_CPU_SIMD_H_
#else
#define PUSHPULL_KERNELS_CPU_SIMD_H_
#endif

#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/bfloat16.h"
#include "kernels/cpu/packed_numbers.h"
#include "kernels/cpu/panels.h"
#include "kernels/operators.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;
// The floats of a Vector.
constexpr int64_t kVectorLanes = HWY_LANES(float) < 16 ? HWY_LANES(float) : 16;

HWY_INLINE Vector Zero() { return hn::Zero(Tag()); }
HWY_INLINE Vector LoadWhole(const float* p) { return hn::LoadU(Tag(), p); }

// Bfloat16 in memory is read to floats, and floats are written as the upper halves of their bits.
using Bits = hn::RebindToUnsigned<Tag>;
using HalfBits = hn::Rebind<uint16_t, Tag>;

HWY_INLINE Vector Widen(hn::Vec<HalfBits> halves) {
  return hn::BitCast(Tag(), hn::ShiftLeft<16>(hn::PromoteTo(Bits(), halves)));
}
HWY_INLINE hn::Vec<HalfBits> UpperHalves(Vector v) {
  const hn::RebindToSigned<Tag> integers;
  const auto upper = hn::BitCast(integers, hn::ShiftRight<16>(hn::BitCast(Bits(), v)));
  return hn::DemoteTo(HalfBits(), upper);
}
HWY_INLINE const uint16_t* BitsOf(const Bfloat16* p) {
  return reinterpret_cast<const uint16_t*>(p);
}
HWY_INLINE uint16_t* BitsOf(Bfloat16* p) { return reinterpret_cast<uint16_t*>(p); }
HWY_INLINE Vector LoadWhole(const Bfloat16* p) { return Widen(hn::LoadU(HalfBits(), BitsOf(p))); }

// Returns v rounded to a T, as ToBfloat16 does it. A float is a float already.
template <typename T>
HWY_INLINE Vector Rounded(Vector v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    const auto bits = hn::BitCast(Bits(), v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(Bits(), 1));
    const auto nearest = hn::Add(bits, hn::Add(odd, hn::Set(Bits(), 0x7fff)));
    const auto quiet = hn::Or(bits, hn::Set(Bits(), 0x400000));
    const Vector rounded =
        hn::IfThenElse(hn::IsNaN(v), hn::BitCast(Tag(), quiet), hn::BitCast(Tag(), nearest));
    return hn::And(rounded, hn::BitCast(Tag(), hn::Set(Bits(), 0xffff0000)));
  }
}

// Rounds two vectors and returns their lanes in pairs: `first` in the lower halves of the 32 bits,
// `second` in the upper halves. These are not values of floats, but the bits of two numbers each.
HWY_INLINE Vector Pair(Vector first, Vector second) {
  const auto lower = hn::ShiftRight<16>(hn::BitCast(Bits(), Rounded<Bfloat16>(first)));
  return hn::BitCast(Tag(), hn::Or(lower, hn::BitCast(Bits(), Rounded<Bfloat16>(second))));
}

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
  template <typename T>
  HWY_INLINE void Store(T* p, Vector v) const {
    StoreExact(p, Rounded<T>(v));
  }
  HWY_INLINE void StoreExact(float* p, Vector v) const { hn::StoreU(v, Tag(), p); }
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
  template <typename T>
  HWY_INLINE void Store(T* p, Vector v) const {
    StoreExact(p, Rounded<T>(v));
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
    const auto halves = UpperHalves(Rounded<Bfloat16>(v));
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
