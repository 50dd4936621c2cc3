// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
// clang-format off
// RMSProp: tf.train.RMSPropOptimizer, not centered (TensorFlow 1, ApplyRMSProp), after Tieleman and
// Hinton, Lecture 6.5, 2012. Slots s (mean square, initially 1) and m (momentum). epsilon is inside
// the root, and m already contains lr.
//
//   s' = s + (1 - decay) * (g^2 - s)
//   m' = momentum * m + lr * g / sqrt(s' + epsilon)
//   w' = w - m'
// clang-format on
#include <memory>

#include "common/base/cpu_isa.h"
#include "common/optimizer/rules/all_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/rules/rms_prop.cc"
#include "hwy/foreach_target.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "common/optimizer/rules/elementwise_update.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

struct RmsPropStep {
  static constexpr int kSlots = 2;
  Lanes one_minus_decay, momentum, epsilon, rate;

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& s = slots[0];
    Lanes& m = slots[1];
    s = Fma(g * g - s, one_minus_decay, s);
    m = Fma(m, momentum, (g * rate) / Sqrt(s + epsilon));
    return w - m;
  }
};

std::unique_ptr<const StepUpdate> AtStep(const config::RMSPropOptimizer& config,
                                         float learning_rate) {
  return MakeElementwise(
      RmsPropStep{.one_minus_decay = Broadcast(static_cast<float>(1.0 - config.decay())),
                  .momentum = Broadcast(config.momentum_optimizer_value()),
                  .epsilon = Broadcast(config.epsilon()),
                  .rate = Broadcast(learning_rate)});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

class RmsProp final : public OptimizerRule {
 public:
  explicit RmsProp(const config::RMSPropOptimizer& config)
      : OptimizerRule({{"RMSProp", 1.0f}, {"RMSProp_1"}}), config_(config) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t /*step*/, float learning_rate) const override {
    return PUSHPULL_FOR_CHOSEN_ISA(AtStep)(config_, learning_rate);
  }

 private:
  const config::RMSPropOptimizer config_;
};

}  // namespace

RulePointer MakeRule(const config::RMSPropOptimizer& config) {
  return std::make_shared<RmsProp>(config);
}

}  // namespace pushpull
#endif  // HWY_ONCE
