// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
// clang-format off
// Momentum: tf.train.MomentumOptimizer (TensorFlow 1, ApplyMomentum). Slot a.
//
//   a' = momentum * a + g
//   w' = w - lr * a'                           without use_nesterov
//   w' = w - (lr * g + lr * momentum * a')     with use_nesterov
// clang-format on
#include <memory>

#include "common/base/cpu_isa.h"
#include "common/optimizer/rules/all_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/rules/momentum.cc"
#include "hwy/foreach_target.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "common/optimizer/rules/elementwise_update.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

struct MomentumStep {
  static constexpr int kSlots = 1;
  Lanes momentum, rate;

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& a = slots[0];
    a = Fma(a, momentum, g);
    return FmaNegated(rate, a, w);
  }
};

struct NesterovStep {
  static constexpr int kSlots = 1;
  Lanes momentum, rate;

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& a = slots[0];
    a = Fma(a, momentum, g);
    return FmaNegated(rate, Fma(a, momentum, g), w);
  }
};

std::unique_ptr<const StepUpdate> AtStep(float momentum, bool use_nesterov, float learning_rate) {
  if (use_nesterov) {
    return MakeElementwise(NesterovStep{Broadcast(momentum), Broadcast(learning_rate)});
  }
  return MakeElementwise(MomentumStep{Broadcast(momentum), Broadcast(learning_rate)});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

class Momentum final : public OptimizerRule {
 public:
  Momentum(float momentum, bool use_nesterov, const char* slot)
      : OptimizerRule({{slot}}), momentum_(momentum), use_nesterov_(use_nesterov) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t /*step*/, float learning_rate) const override {
    return PUSHPULL_FOR_CHOSEN_ISA(AtStep)(momentum_, use_nesterov_, learning_rate);
  }

 private:
  const float momentum_;
  const bool use_nesterov_;
};

}  // namespace

RulePointer MakeRule(const config::MomentumOptimizer& config) {
  return std::make_shared<Momentum>(config.momentum_optimizer_value(), config.use_nesterov(),
                                    "Momentum");
}

RulePointer MakeOuterMomentumRule(float momentum, bool use_nesterov) {
  return std::make_shared<Momentum>(momentum, use_nesterov, "OuterMomentum");
}

}  // namespace pushpull
#endif  // HWY_ONCE
