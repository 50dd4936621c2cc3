// Vectors of 16 floats with AVX-512, of 8 with AVX2: what the fast kernels share. Pure functions
// and plain values. A kernel that uses them is compiled once per instruction set
// (docs/decisions/0028-instruction-sets-at-run-time.md): it includes this header after Highway's
// foreach_target.h, and has its code in HWY_NAMESPACE. The guard lets the header in once for each.
#if defined(PUSHPULL_KERNELS_CPU_SIMD_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_SIMD_H_
#undef PUSHPULL_KERNELS_CPU_SIMD_H_
#else
#define PUSHPULL_KERNELS_CPU_SIMD_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kernels/cpu/panels.h"
#include "kernels/operators.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<float, 16>;
using Vector = hn::Vec<Tag>;
constexpr int64_t kLanes = HWY_LANES(float) < 16 ? HWY_LANES(float) : 16;

HWY_INLINE Vector Zero() { return hn::Zero(Tag()); }
HWY_INLINE Vector LoadWhole(const float* p) { return hn::LoadU(Tag(), p); }

// Accesses to a whole vector in memory, or to its first lanes if the channels end inside it. The
// other lanes are read as zeros and not written. Kernels are templates over these two types, so
// only the last vector of a row pays for the mask.
//
// LoadPadded and StorePadded are for memory of our own, whose rows are padded to a multiple of
// kVector (8) floats. With AVX2 they need no mask.
struct FullLanes {
  HWY_INLINE Vector Load(const float* p) const { return LoadWhole(p); }
  HWY_INLINE void Store(float* p, Vector v) const { hn::StoreU(v, Tag(), p); }
  HWY_INLINE Vector LoadPadded(const float* p) const { return Load(p); }
  HWY_INLINE void StorePadded(float* p, Vector v) const { Store(p, v); }
};
class SomeLanes {
 public:
  // 1 <= lanes < kLanes
  HWY_INLINE explicit SomeLanes(int64_t lanes)
      : mask_(hn::FirstN(Tag(), lanes)),
        padded_mask_(hn::FirstN(Tag(), (lanes + kVector - 1) / kVector * kVector)) {}

  HWY_INLINE Vector Load(const float* p) const { return hn::MaskedLoad(mask_, Tag(), p); }
  HWY_INLINE void Store(float* p, Vector v) const { hn::BlendedStore(v, mask_, Tag(), p); }
  HWY_INLINE Vector LoadPadded(const float* p) const {
    if constexpr (kLanes == kVector) return LoadWhole(p);
    return hn::MaskedLoad(padded_mask_, Tag(), p);
  }
  HWY_INLINE void StorePadded(float* p, Vector v) const {
    if constexpr (kLanes == kVector) return hn::StoreU(v, Tag(), p);
    hn::BlendedStore(v, padded_mask_, Tag(), p);
  }

 private:
  hn::Mask<Tag> mask_;
  hn::Mask<Tag> padded_mask_;
};

// Calls f(first channel, lanes) for each vector of the channels [begin, end).
template <typename F>
HWY_INLINE void ForEachVector(int64_t begin, int64_t end, F f) {
  int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes) f(c, FullLanes{});
  if (c < end) f(c, SomeLanes(end - c));
}

// An activation as a clamp: value = min(max(z, low), high). The slope is 1 strictly inside the
// bounds. A NaN passes through: x86 returns the second operand of min and max if one is a NaN, and
// a comparison with a NaN is false.
struct Bounds {
  HWY_INLINE explicit Bounds(Activation activation) {
    const float infinity = std::numeric_limits<float>::infinity();
    low = hn::Set(Tag(), activation == Activation::kNone ? -infinity : 0.0f);
    high = hn::Set(Tag(), activation == Activation::kRelu6 ? 6.0f : infinity);
  }
  HWY_INLINE Vector Clamp(Vector z) const { return hn::Min(high, hn::Max(low, z)); }
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
