// The vectors of the fast kernels, of 16 floats with AVX-512, of 8 with AVX2, of 4 with SSE4 and
// NEON, and how they become bfloat16 numbers. Included like simd.h, once for each instruction set.
#if defined(PUSHPULL_KERNELS_CPU_VECTORS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_VECTORS_H_
#undef PUSHPULL_KERNELS_CPU_VECTORS_H_
#else
#define PUSHPULL_KERNELS_CPU_VECTORS_H_
#endif

#include <cstdint>
#include <type_traits>

#include "common/base/cpu_isa.h"
#include "hwy/highway.h"
#include "kernels/bfloat16.h"

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

#if HWY_TARGET == HWY_AVX3
// As Rounded and UpperHalves, and as Pair below, with the instructions of AVX512-BF16.
// Highway 1.0.3 has no target for them, and the compiler offers them only to functions that are
// compiled for them as a whole. They take denormal numbers for zeros.
HWY_INLINE bool HasRoundingInstruction() {
  return chosen_cpu_isa_has_avx512_bf16.load(std::memory_order_relaxed);
}
HWY_INLINE hn::Vec<HalfBits> RoundByInstruction(Vector v) {
  hn::Vec<HalfBits> halves;
  asm("vcvtneps2bf16 %1, %0" : "=v"(halves.raw) : "v"(v.raw));
  return halves;
}
HWY_INLINE Vector PairByInstruction(Vector first, Vector second) {
  const auto lower = hn::PromoteTo(Bits(), RoundByInstruction(first));
  const auto upper = hn::PromoteTo(Bits(), RoundByInstruction(second));
  return hn::BitCast(Tag(), hn::Or(lower, hn::ShiftLeft<16>(upper)));
}
#endif

// Returns v rounded to a Bfloat16, as ToBfloat16 does it, also where v is denormal.
HWY_INLINE Vector RoundedInIntegers(Vector v) {
  const auto bits = hn::BitCast(Bits(), v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(Bits(), 1));
  const auto nearest = hn::Add(bits, hn::Add(odd, hn::Set(Bits(), 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(Bits(), 0x400000));
  const Vector rounded =
      hn::IfThenElse(hn::IsNaN(v), hn::BitCast(Tag(), quiet), hn::BitCast(Tag(), nearest));
  return hn::And(rounded, hn::BitCast(Tag(), hn::Set(Bits(), 0xffff0000)));
}

// Returns v rounded to a T, as ToBfloat16 does it. A float is a float already. A denormal number
// may become zero, so v has to be the result of arithmetic that flushes them (kernel_loop.h), or to
// go into a product, which reads them as zeros.
template <typename T>
HWY_INLINE Vector Rounded(Vector v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
#if HWY_TARGET == HWY_AVX3
    if (HasRoundingInstruction()) return Widen(RoundByInstruction(v));
#endif
    return RoundedInIntegers(v);
  }
}

// Returns the bits of v rounded to a Bfloat16, under the same condition.
HWY_INLINE hn::Vec<HalfBits> RoundedHalves(Vector v) {
#if HWY_TARGET == HWY_AVX3
  if (HasRoundingInstruction()) return RoundByInstruction(v);
#endif
  return UpperHalves(RoundedInIntegers(v));
}

// Rounds two vectors and returns their lanes in pairs: `first` in the lower halves of the 32 bits,
// `second` in the upper halves. These are not values of floats, but the bits of two numbers each.
HWY_INLINE Vector Pair(Vector first, Vector second) {
#if HWY_TARGET == HWY_AVX3
  if (HasRoundingInstruction()) return PairByInstruction(first, second);
#endif
  const auto lower = hn::ShiftRight<16>(hn::BitCast(Bits(), RoundedInIntegers(first)));
  return hn::BitCast(Tag(), hn::Or(lower, hn::BitCast(Bits(), RoundedInIntegers(second))));
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_VECTORS_H_
