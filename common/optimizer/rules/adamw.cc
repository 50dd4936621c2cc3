// Tested by tests/common/optimizer/optimizer_golden_test.cc.
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

#include "common/optimizer/rules/all_rules.h"
#include "common/optimizer/rules/elementwise_update.h"

namespace pushpull {
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
    if (!decays_all && run.variable->shape.size() < 2) step.decay = Broadcast(0.0f);
    return step;
  }

  Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& m = slots[0];
    Lanes& v = slots[1];
    m = Fma(g - m, one_minus_beta1, m);
    v = Fma(g * g - v, one_minus_beta2, v);
    return FmaNegated(decay, w, w) - (m * rate) / (Sqrt(v * v_scale) + epsilon);
  }
};

class AdamW final : public OptimizerRule {
 public:
  explicit AdamW(const config::AdamWOptimizer& config)
      : OptimizerRule({{"AdamW"}, {"AdamW_1"}}), config_(config) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t step, float learning_rate) const override {
    const auto rounded = [](double x) { return Broadcast(static_cast<float>(x)); };
    const double beta1 = config_.beta1();
    const double beta2 = config_.beta2();
    const double t = static_cast<double>(step);
    return MakeElementwise(
        AdamWStep{.one_minus_beta1 = rounded(1 - beta1),
                  .one_minus_beta2 = rounded(1 - beta2),
                  .epsilon = Broadcast(config_.epsilon()),
                  .rate = rounded(learning_rate / (1 - std::pow(beta1, t))),
                  .v_scale = rounded(1 / (1 - std::pow(beta2, t))),
                  .decay = rounded(double{learning_rate} * config_.weight_decay()),
                  .decays_all = config_.decay_all_variables()});
  }

 private:
  const config::AdamWOptimizer config_;
};

}  // namespace

RulePointer MakeRule(const config::AdamWOptimizer& config) {
  return std::make_shared<AdamW>(config);
}

}  // namespace pushpull
