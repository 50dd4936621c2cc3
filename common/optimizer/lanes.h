// Eight float32 elements at a time: what the kernels of this folder share. Every operation except
// SquareSum rounds the same in any lane and for each instruction set, so the result depends neither
// on how a vector is cut into runs nor on the CPU. For kernels only; not for headers that others
// include. A kernel is compiled once per instruction set: it includes this header after Highway's
// foreach_target.h, and has its code in HWY_NAMESPACE. The guard lets the header in once for each.
#if defined(PUSHPULL_COMMON_OPTIMIZER_LANES_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_COMMON_OPTIMIZER_LANES_H_
#undef PUSHPULL_COMMON_OPTIMIZER_LANES_H_
#else
#define PUSHPULL_COMMON_OPTIMIZER_LANES_H_
#endif

#include <algorithm>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr int kLanes = 8;

using LaneTag = hn::CappedTag<float, kLanes>;
using LaneVector = hn::Vec<LaneTag>;
constexpr int kVectorLanes = std::min<int>(HWY_LANES(float), kLanes);
constexpr int kVectors = kLanes / kVectorLanes;

// Returns a * b + c, rounded once. Without instructions for it, the product is computed in double,
// where it is exact, and the sum is rounded to odd: if it is not exact, its last bit becomes 1.
// Then rounding to float gives what a single rounding would, since a double has over two bits more
// (Boldo and Melquiond, 2008, "Emulation of FMA and correctly rounded sums").
HWY_INLINE LaneVector MulAddOnce(LaneVector a, LaneVector b, LaneVector c) {
#if HWY_NATIVE_FMA
  return hn::MulAdd(a, b, c);
#else
  using Half = hn::Half<LaneTag>;
  using Tag = hn::Rebind<double, Half>;
  const hn::RebindToSigned<Tag> integers;
  const auto half = [&](hn::Vec<Half> half_a, hn::Vec<Half> half_b, hn::Vec<Half> half_c) HWY_ATTR {
    const auto product = hn::Mul(hn::PromoteTo(Tag(), half_a), hn::PromoteTo(Tag(), half_b));
    const auto addend = hn::PromoteTo(Tag(), half_c);
    const auto sum = hn::Add(product, addend);
    // The exact error of the sum (Knuth's TwoSum); NaN where the sum is not finite.
    const auto part = hn::Sub(sum, product);
    const auto error = hn::Add(hn::Sub(product, hn::Sub(sum, part)), hn::Sub(addend, part));
    // An even sum moves to its odd neighbour on the side of the exact value.
    const auto bits = hn::BitCast(integers, sum);
    const auto one = hn::Set(integers, 1);
    const auto away = hn::Xor(bits, hn::BitCast(integers, error));
    const auto step = hn::IfNegativeThenElse(away, hn::Set(integers, -1), one);
    const auto even = hn::Eq(hn::And(bits, one), hn::Zero(integers));
    const auto inexact = hn::Or(hn::Lt(error, hn::Zero(Tag())), hn::Gt(error, hn::Zero(Tag())));
    const auto moves = hn::And(hn::RebindMask(integers, inexact), even);
    const auto odd = hn::Add(bits, hn::IfThenElseZero(moves, step));
    return hn::DemoteTo(Half(), hn::BitCast(Tag(), odd));
  };
  const Half d;
  return hn::Combine(LaneTag(), half(hn::UpperHalf(d, a), hn::UpperHalf(d, b), hn::UpperHalf(d, c)),
                     half(hn::LowerHalf(d, a), hn::LowerHalf(d, b), hn::LowerHalf(d, c)));
#endif
}

// Eight floats, in as many vectors as that takes. +, -, * and / work element by element and round
// once each.
struct Lanes {
  LaneVector vectors[kVectors];
};

HWY_INLINE Lanes operator+(const Lanes& a, const Lanes& b) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) result.vectors[v] = hn::Add(a.vectors[v], b.vectors[v]);
  return result;
}
HWY_INLINE Lanes operator-(const Lanes& a, const Lanes& b) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) result.vectors[v] = hn::Sub(a.vectors[v], b.vectors[v]);
  return result;
}
HWY_INLINE Lanes operator*(const Lanes& a, const Lanes& b) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) result.vectors[v] = hn::Mul(a.vectors[v], b.vectors[v]);
  return result;
}
HWY_INLINE Lanes operator/(const Lanes& a, const Lanes& b) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) result.vectors[v] = hn::Div(a.vectors[v], b.vectors[v]);
  return result;
}
HWY_INLINE Lanes Sqrt(const Lanes& a) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) result.vectors[v] = hn::Sqrt(a.vectors[v]);
  return result;
}
// Returns a * b + c, rounded once.
HWY_INLINE Lanes Fma(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    result.vectors[v] = MulAddOnce(a.vectors[v], b.vectors[v], c.vectors[v]);
  }
  return result;
}
// Returns c - a * b, rounded once.
HWY_INLINE Lanes FmaNegated(const Lanes& a, const Lanes& b, const Lanes& c) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    result.vectors[v] = MulAddOnce(hn::Neg(a.vectors[v]), b.vectors[v], c.vectors[v]);
  }
  return result;
}

HWY_INLINE Lanes Broadcast(float value) {
  Lanes result;
  for (auto& vector : result.vectors) vector = hn::Set(LaneTag(), value);
  return result;
}
// p is 32-byte aligned.
HWY_INLINE Lanes Load(const float* p) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    result.vectors[v] = hn::Load(LaneTag(), p + v * kVectorLanes);
  }
  return result;
}
HWY_INLINE Lanes LoadUnaligned(const float* p) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    result.vectors[v] = hn::LoadU(LaneTag(), p + v * kVectorLanes);
  }
  return result;
}
// p is 32-byte aligned.
HWY_INLINE void Store(const Lanes& value, float* p) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    hn::Store(value.vectors[v], LaneTag(), p + v * kVectorLanes);
  }
}

// Returns `value` with zeros in the lanes from `count` on.
HWY_INLINE Lanes FirstLanes(const Lanes& value, int count) {
  Lanes result;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const int here = std::clamp(count - v * kVectorLanes, 0, kVectorLanes);
    result.vectors[v] = hn::IfThenElseZero(hn::FirstN(LaneTag(), here), value.vectors[v]);
  }
  return result;
}

// Stores results and zeroes the lanes past the end. Every result is stored here, so that the choice
// to bypass the caches is made in one place.
struct Writer {
  int remaining;  // elements left in the run, this group included
  HWY_INLINE void Store(float* to, Lanes value) const {
    if (remaining < kLanes) value = FirstLanes(value, remaining);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      hn::Stream(value.vectors[v], LaneTag(), to + v * kVectorLanes);
    }
  }
};

// Calls body(i, remaining) for each group of 8 elements up to count rounded up to a multiple of 16.
// A group that is all padding has remaining <= 0.
template <typename Body>
HWY_INLINE void ForEachGroup(int count, Body body) {
  const int padded = (count + 15) / 16 * 16;
  for (int i = 0; i < padded; i += kLanes) body(i, count - i);
}

// Sums squares in double, in an order that depends only on the number of Add calls. The square of a
// float is exact in double.
class SquareSum {
 public:
  HWY_INLINE SquareSum() {
    for (auto& sum : sums_) sum = hn::Zero(Tag());
  }
  // Adds the squares of the first `remaining` lanes, or of all if there are more.
  HWY_INLINE void Add(Lanes x, int remaining) {
    if (remaining < kLanes) x = FirstLanes(x, remaining);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      AddTo(sums_[2 * v], hn::LowerHalf(Half(), x.vectors[v]));
      AddTo(sums_[2 * v + 1], hn::UpperHalf(Half(), x.vectors[v]));
    }
  }
  double Total() const {
    constexpr int kStep = kVectorLanes / 2;
    HWY_ALIGN double lanes[kLanes];
    for (int s = 0; s < 2 * kVectors; ++s) hn::Store(sums_[s], Tag(), lanes + s * kStep);
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
           ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
  }

 private:
  using Half = hn::Half<LaneTag>;
  using Tag = hn::Rebind<double, Half>;
  static HWY_INLINE void AddTo(hn::Vec<Tag>& sum, hn::Vec<Half> floats) {
    const auto x = hn::PromoteTo(Tag(), floats);
    sum = hn::MulAdd(x, x, sum);
  }

  hn::Vec<Tag> sums_[2 * kVectors];
};

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_COMMON_OPTIMIZER_LANES_H_
