// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
// clang-format off
// Adam: tf.train.AdamOptimizer (TensorFlow 1, ApplyAdam), after Kingma and Ba, 2015
// (arXiv:1412.6980), in the form given just before its section 2.1: epsilon is outside the root and
// is the paper's epsilon-hat. Slots m and v.
//
//   m'   = m + (1 - beta1) * (g - m)                    beta1 = 0.9
//   v'   = v + (1 - beta2) * (g^2 - v)                  beta2 = 0.999
//   lr_t = lr * sqrt(1 - beta2^t) / (1 - beta1^t)       in double, then rounded to float
//   w'   = w - lr_t * m' / (sqrt(v') + epsilon)
// clang-format on
#include <cmath>
#include <memory>

#include "common/base/cpu_isa.h"
#include "common/optimizer/rules/all_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/rules/adam.cc"
#include "hwy/foreach_target.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "common/optimizer/rules/elementwise_update.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;

struct AdamStep {
  static constexpr int kSlots = 2;
  Lanes epsilon, rate;

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& m = slots[0];
    Lanes& v = slots[1];
    m = Fma(g - m, Broadcast(static_cast<float>(1 - kBeta1)), m);
    v = Fma(g * g - v, Broadcast(static_cast<float>(1 - kBeta2)), v);
    return w - (m * rate) / (Sqrt(v) + epsilon);
  }
};

std::unique_ptr<const StepUpdate> AtStep(float epsilon, uint64_t step, float learning_rate) {
  const double t = static_cast<double>(step);
  const double rate =
      learning_rate * (std::sqrt(1 - std::pow(kBeta2, t)) / (1 - std::pow(kBeta1, t)));
  return MakeElementwise(AdamStep{Broadcast(epsilon), Broadcast(static_cast<float>(rate))});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

class Adam final : public OptimizerRule {
 public:
  explicit Adam(const config::AdamOptimizer& config)
      : OptimizerRule({{"Adam"}, {"Adam_1"}}), epsilon_(config.epsilon()) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t step, float learning_rate) const override {
    return PUSHPULL_FOR_CHOSEN_ISA(AtStep)(epsilon_, step, learning_rate);
  }

 private:
  const float epsilon_;
};

}  // namespace

RulePointer MakeRule(const config::AdamOptimizer& config) { return std::make_shared<Adam>(config); }

}  // namespace pushpull
#endif  // HWY_ONCE
