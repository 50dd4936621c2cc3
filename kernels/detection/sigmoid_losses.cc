// Tested by tests/kernels/detection/detection_units_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/detection/sigmoid_losses.h"

#include <algorithm>

#include "common/base/cpu_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/detection/sigmoid_losses.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Tag = hn::CappedTag<double, 8>;
using Vector = hn::Vec<Tag>;

// The logarithms of p = sigmoid(s) and of 1 - p, negated, from one exponential. They are
// max(-s, 0) + ln(1 + exp(-|s|)) and max(s, 0) + the same.
struct Sigmoid {
  HWY_INLINE explicit Sigmoid(Vector s) : positive(hn::Gt(s, hn::Zero(Tag()))) {
    const Tag d;
    // Highway's Exp takes a NaN for a number.
    exponential = hn::IfThenElse(hn::IsNaN(s), s, hn::Exp(d, hn::Neg(hn::Abs(s))));
    const Vector rest = hn::Log1p(d, exponential);
    minus_log_p = hn::Add(hn::IfThenZeroElse(positive, hn::Neg(s)), rest);
    minus_log_other = hn::Add(hn::IfThenElseZero(positive, s), rest);
  }

  // (1 - p)^gamma.
  HWY_INLINE Vector FocalFactor(double gamma) const {
    return hn::Exp(Tag(), hn::Mul(hn::Set(Tag(), -gamma), minus_log_other));
  }

  hn::Mask<Tag> positive;  // s > 0
  Vector exponential;      // exp(-|s|)
  Vector minus_log_p;
  Vector minus_log_other;
};

template <bool kFocal>
struct Loss {
  double gamma;

  HWY_INLINE Vector operator()(Vector s) const {
    const Sigmoid sigmoid(s);
    if constexpr (!kFocal) return sigmoid.minus_log_p;
    return hn::Mul(sigmoid.FocalFactor(gamma), sigmoid.minus_log_p);
  }
};

template <bool kFocal>
struct Slope {
  double gamma;

  HWY_INLINE Vector operator()(Vector s) const {
    const Tag d;
    const Sigmoid sigmoid(s);
    const Vector larger = hn::Div(hn::Set(d, 1.0), hn::Add(hn::Set(d, 1.0), sigmoid.exponential));
    const Vector smaller = hn::Mul(sigmoid.exponential, larger);
    const Vector other = hn::IfThenElse(sigmoid.positive, smaller, larger);  // 1 - p
    if constexpr (!kFocal) return hn::Neg(other);
    const Vector p = hn::IfThenElse(sigmoid.positive, larger, smaller);
    const Vector inner =
        hn::NegMulAdd(hn::Mul(hn::Set(d, gamma), p), sigmoid.minus_log_p, hn::Neg(other));
    return hn::Mul(sigmoid.FocalFactor(gamma), inner);
  }
};

// out[i] = f(s[i]). f has some 70 to 120 operations per vector and no branches, so its polynomials
// are the bound.
template <typename F>
HWY_INLINE void Apply(const F& f, const double* s, int64_t count, double* out) {
  const Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(f(hn::LoadU(d, s + i)), d, out + i);
  if (i == count) return;
  // Highway's masked load needs alignment with SSE4 and reads a whole vector.
  HWY_ALIGN double rest[hn::MaxLanes(Tag())] = {};
  std::copy(s + i, s + count, rest);
  hn::Store(f(hn::Load(d, rest)), d, rest);
  std::copy(rest, rest + (count - i), out + i);
}

void Losses(double gamma, const double* s, int64_t count, double* losses) {
  if (gamma == 0.0) return Apply(Loss<false>{gamma}, s, count, losses);
  Apply(Loss<true>{gamma}, s, count, losses);
}

void Slopes(double gamma, const double* s, int64_t count, double* slopes) {
  if (gamma == 0.0) return Apply(Slope<false>{gamma}, s, count, slopes);
  Apply(Slope<true>{gamma}, s, count, slopes);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

void SigmoidLosses(double gamma, const double* s, int64_t count, double* losses) {
  PUSHPULL_FOR_CHOSEN_ISA(Losses)(gamma, s, count, losses);
}

void SigmoidSlopes(double gamma, const double* s, int64_t count, double* slopes) {
  PUSHPULL_FOR_CHOSEN_ISA(Slopes)(gamma, s, count, slopes);
}

}  // namespace pushpull
#endif  // HWY_ONCE
