// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
// clang-format off
// Adagrad: tf.train.AdagradOptimizer (TensorFlow 1, ApplyAdagrad), after Duchi, Hazan and Singer,
// 2011. Slot s (sum of squares, initially initial_accumulator_value), which is never 0.
//
//   s' = s + g^2
//   w' = w - lr * g / sqrt(s')
// clang-format on
#include <memory>

#include "common/base/cpu_isa.h"
#include "common/optimizer/rules/all_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/rules/adagrad.cc"
#include "hwy/foreach_target.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "common/optimizer/rules/elementwise_update.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

struct AdagradStep {
  static constexpr int kSlots = 1;
  Lanes rate;

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& s = slots[0];
    s = Fma(g, g, s);
    return w - (g * rate) / Sqrt(s);
  }
};

std::unique_ptr<const StepUpdate> AtStep(float learning_rate) {
  return MakeElementwise(AdagradStep{Broadcast(learning_rate)});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

class Adagrad final : public OptimizerRule {
 public:
  explicit Adagrad(const config::AdagradOptimizer& config)
      : OptimizerRule({{"Adagrad", config.initial_accumulator_value()}}) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t /*step*/, float learning_rate) const override {
    return PUSHPULL_FOR_CHOSEN_ISA(AtStep)(learning_rate);
  }
};

}  // namespace

RulePointer MakeRule(const config::AdagradOptimizer& config) {
  return std::make_shared<Adagrad>(config);
}

}  // namespace pushpull
#endif  // HWY_ONCE
