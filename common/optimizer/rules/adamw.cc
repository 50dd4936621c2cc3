// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
// clang-format off
// AdamW: torch.optim.AdamW without amsgrad, after Loshchilov and Hutter, 2019 (arXiv:1711.05101).
// Unlike in adam.cc, epsilon is added to the corrected root. Slots m and v.
//
//   m' = m + (1 - beta1) * (g - m)
//   v' = v + (1 - beta2) * (g^2 - v)
//   w' = w - lr * weight_decay * w - lr * (m' / (1 - beta1^t)) / (sqrt(v' / (1 - beta2^t)) + epsilon)
//
// Variables with fewer than two dimensions, which are biases and batch-norm variables, do not
// decay, unless decay_all_variables is set.
// clang-format on
#include <cmath>
#include <memory>

#include "common/base/cpu_isa.h"
#include "common/optimizer/rules/all_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/rules/adamw.cc"
#include "hwy/foreach_target.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "common/optimizer/rules/elementwise_update.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

struct AdamWStep {
  static constexpr int kSlots = 2;
  Lanes one_minus_beta1, one_minus_beta2, epsilon;
  Lanes rate;     // lr / (1 - beta1^t)
  Lanes v_scale;  // 1 / (1 - beta2^t)
  Lanes decay;    // lr * weight_decay
  bool decays_all;

  AdamWStep ForRun(const UpdateRun& run) const {
    AdamWStep step = *this;
    const bool decays = decays_all || run.variable->shape.size() >= 2;
    step.decay =
        decays ? decay * Broadcast(run.variable->learning_rate_multiplier) : Broadcast(0.0f);
    return step;
  }

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& m = slots[0];
    Lanes& v = slots[1];
    m = Fma(g - m, one_minus_beta1, m);
    v = Fma(g * g - v, one_minus_beta2, v);
    return FmaNegated(decay, w, w) - (m * rate) / (Sqrt(v * v_scale) + epsilon);
  }
};

std::unique_ptr<const StepUpdate> AtStep(const config::AdamWOptimizer& config, uint64_t step,
                                         float learning_rate) {
  const auto rounded = [](double x) { return Broadcast(static_cast<float>(x)); };
  const double beta1 = config.beta1();
  const double beta2 = config.beta2();
  const double t = static_cast<double>(step);
  return MakeElementwise(AdamWStep{.one_minus_beta1 = rounded(1 - beta1),
                                   .one_minus_beta2 = rounded(1 - beta2),
                                   .epsilon = Broadcast(config.epsilon()),
                                   .rate = rounded(learning_rate / (1 - std::pow(beta1, t))),
                                   .v_scale = rounded(1 / (1 - std::pow(beta2, t))),
                                   .decay = rounded(double{learning_rate} * config.weight_decay()),
                                   .decays_all = config.decay_all_variables()});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

class AdamW final : public OptimizerRule {
 public:
  explicit AdamW(const config::AdamWOptimizer& config)
      : OptimizerRule({{"AdamW"}, {"AdamW_1"}}), config_(config) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t step, float learning_rate) const override {
    return PUSHPULL_FOR_CHOSEN_ISA(AtStep)(config_, step, learning_rate);
  }

 private:
  const config::AdamWOptimizer config_;
};

}  // namespace

RulePointer MakeRule(const config::AdamWOptimizer& config) {
  return std::make_shared<AdamW>(config);
}

}  // namespace pushpull
#endif  // HWY_ONCE
