// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
// clang-format off
// Delayed Nesterov momentum: Liu et al., 2024 (arXiv:2401.09135), the algorithm "Delayed Nesterov
// Update" with momentum activation c = 0. Slots m, the momentum, and s, the sum of this period.
// A period has n = momentum_every steps; it ends with the steps that n divides.
//
//   s' = s + g / n
//   w' = w - lr * g / n                        in a step that n does not divide
//
//   m' = momentum * m + s'                     in a step that n divides; then s' becomes 0
//   w' = w - lr * (momentum * m' + g / n)
//
// Over a period the weights move as in one step of Nesterov's momentum (momentum.cc) with the mean
// of the period's gradients. With n = 1 the two are the same.
// clang-format on
#include <memory>

#include "common/base/cpu_isa.h"
#include "common/optimizer/rules/all_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/rules/delayed_nesterov.cc"
#include "hwy/foreach_target.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "common/optimizer/rules/elementwise_update.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

struct StepWithinPeriod {
  static constexpr int kSlots = 2;
  Lanes share, rate;  // share: 1 / n

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    const Lanes part = g * share;
    slots[1] = slots[1] + part;
    return FmaNegated(rate, part, w);
  }
};

struct StepThatEndsAPeriod {
  static constexpr int kSlots = 2;
  Lanes share, rate, momentum;

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    const Lanes part = g * share;
    Lanes& m = slots[0];
    m = Fma(m, momentum, slots[1] + part);
    slots[1] = Broadcast(0.0f);
    return FmaNegated(rate, Fma(m, momentum, part), w);
  }
};

std::unique_ptr<const StepUpdate> AtStep(float momentum, uint32_t momentum_every, uint64_t step,
                                         float learning_rate) {
  const Lanes share = Broadcast(static_cast<float>(1.0 / momentum_every));
  const Lanes rate = Broadcast(learning_rate);
  if (step % momentum_every != 0) return MakeElementwise(StepWithinPeriod{share, rate});
  return MakeElementwise(StepThatEndsAPeriod{share, rate, Broadcast(momentum)});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

class DelayedNesterov final : public OptimizerRule {
 public:
  DelayedNesterov(float momentum, uint32_t momentum_every)
      : OptimizerRule({{"DelayedNesterov"}, {"DelayedNesterov_1"}}),
        momentum_(momentum),
        momentum_every_(momentum_every) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t step, float learning_rate) const override {
    return PUSHPULL_FOR_CHOSEN_ISA(AtStep)(momentum_, momentum_every_, step, learning_rate);
  }

 private:
  const float momentum_;
  const uint32_t momentum_every_;
};

}  // namespace

RulePointer MakeDelayedNesterovRule(float momentum, uint32_t momentum_every) {
  return std::make_shared<DelayedNesterov>(momentum, momentum_every);
}

}  // namespace pushpull
#endif  // HWY_ONCE
