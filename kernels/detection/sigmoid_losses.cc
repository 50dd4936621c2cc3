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

HWY_INLINE hn::Vec<Tag> Loss(hn::Vec<Tag> s) {
  const Tag d;
  const auto rest = hn::Log1p(d, hn::Exp(d, hn::Neg(hn::Abs(s))));
  return hn::Add(hn::IfThenZeroElse(hn::Gt(s, hn::Zero(d)), hn::Neg(s)), rest);
}

// Some 70 operations per vector, without branches; the two polynomials are the bound.
void Losses(const double* s, int64_t count, double* losses) {
  const Tag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(Loss(hn::LoadU(d, s + i)), d, losses + i);
  if (i == count) return;
  // Highway's masked load needs alignment with SSE4 and reads a whole vector.
  HWY_ALIGN double rest[hn::MaxLanes(Tag())] = {};
  std::copy(s + i, s + count, rest);
  hn::Store(Loss(hn::Load(d, rest)), d, rest);
  std::copy(rest, rest + (count - i), losses + i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

void NegativeLogSigmoids(const double* s, int64_t count, double* losses) {
  PUSHPULL_FOR_CHOSEN_ISA(Losses)(s, count, losses);
}

}  // namespace pushpull
#endif  // HWY_ONCE
