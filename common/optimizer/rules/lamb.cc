// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
// clang-format off
// LAMB: You et al., 2020 (arXiv:1904.00962), Algorithm 2 with phi(x) = x. Slots m and v. The norms
// are taken over a whole variable.
//
//   m' = m + (1 - beta1) * (g - m)
//   v' = v + (1 - beta2) * (g^2 - v)
//   u  = (m' / (1 - beta1^t)) / (sqrt(v' / (1 - beta2^t)) + epsilon) + weight_decay * w
//   w' = w - lr * ratio * u
//   ratio = ||w|| / ||u||, or 1 if either norm is 0
//
// Variables with fewer than two dimensions, which are biases and batch-norm variables, have
// ratio 1 and do not decay, unless adapt_all_variables is set. The authors' own code for BERT also
// excludes these from both.
// clang-format on
#include <cmath>
#include <memory>

#include "common/base/cpu_isa.h"
#include "common/optimizer/rules/all_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/rules/lamb.cc"
#include "hwy/foreach_target.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "common/optimizer/rules/elementwise_update.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

struct LambStep {
  static constexpr int kSlots = 2;
  Lanes one_minus_beta1, one_minus_beta2, epsilon, weight_decay;
  Lanes m_scale;  // 1 / (1 - beta1^t)
  Lanes v_scale;  // 1 / (1 - beta2^t)
  Lanes rate;     // lr * ratio
  float learning_rate;
  bool adapts_all;

  bool Adapts(const VariableSpec& variable) const {
    return adapts_all || variable.shape.size() >= 2;
  }

  LambStep ForRun(const UpdateRun& run) const {
    LambStep step = *this;
    double ratio = 1;
    if (!Adapts(*run.variable)) {
      step.weight_decay = Broadcast(0.0f);
    } else if (run.norms.weights > 0 && run.norms.update > 0) {
      ratio = std::sqrt(run.norms.weights) / std::sqrt(run.norms.update);
    }
    step.rate = Broadcast(static_cast<float>(learning_rate * ratio));
    return step;
  }

  // Makes m' and v' of the slots and returns u.
  HWY_INLINE Lanes Update(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& m = slots[0];
    Lanes& v = slots[1];
    m = Fma(g - m, one_minus_beta1, m);
    v = Fma(g * g - v, one_minus_beta2, v);
    return Fma(weight_decay, w, (m * m_scale) / (Sqrt(v * v_scale) + epsilon));
  }

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    return FmaNegated(rate, Update(w, g, slots), w);
  }
};

class LambUpdate final : public ElementwiseUpdate<LambStep> {
 public:
  using ElementwiseUpdate::ElementwiseUpdate;

  SquaredNorms Measure(const UpdateRun& run) const override {
    const LambStep step = StepFor(run);
    if (!step.Adapts(*run.variable)) return {};
    const GradientScale scale(run);
    const float* const weights = run.from.weights + run.at;
    SquareSum sum_w;
    SquareSum sum_u;
    for (int i = 0; i < run.count; i += kLanes) {
      const Lanes w = Load(weights + i);
      Lanes slots[] = {Load(run.from.slots[0] + run.at + i), Load(run.from.slots[1] + run.at + i)};
      sum_w.Add(w, run.count - i);
      sum_u.Add(step.Update(w, scale.Apply(Load(run.gradient + i), w), slots), run.count - i);
    }
    return {sum_w.Total(), sum_u.Total()};
  }
};

std::unique_ptr<const StepUpdate> AtStep(const config::LambOptimizer& config, uint64_t step,
                                         float learning_rate) {
  const auto rounded = [](double x) { return Broadcast(static_cast<float>(x)); };
  const double beta1 = config.beta1();
  const double beta2 = config.beta2();
  const double t = static_cast<double>(step);
  return std::make_unique<LambUpdate>(LambStep{.one_minus_beta1 = rounded(1 - beta1),
                                               .one_minus_beta2 = rounded(1 - beta2),
                                               .epsilon = Broadcast(config.epsilon()),
                                               .weight_decay = Broadcast(config.weight_decay()),
                                               .m_scale = rounded(1 / (1 - std::pow(beta1, t))),
                                               .v_scale = rounded(1 / (1 - std::pow(beta2, t))),
                                               .rate = Broadcast(learning_rate),
                                               .learning_rate = learning_rate,
                                               .adapts_all = config.adapt_all_variables()});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

class Lamb final : public OptimizerRule {
 public:
  explicit Lamb(const config::LambOptimizer& config)
      : OptimizerRule({{"LAMB"}, {"LAMB_1"}}), config_(config) {}

  bool needs_norms() const override { return true; }

  std::unique_ptr<const StepUpdate> AtStep(uint64_t step, float learning_rate) const override {
    return PUSHPULL_FOR_CHOSEN_ISA(AtStep)(config_, step, learning_rate);
  }

 private:
  const config::LambOptimizer config_;
};

}  // namespace

RulePointer MakeRule(const config::LambOptimizer& config) { return std::make_shared<Lamb>(config); }

}  // namespace pushpull
#endif  // HWY_ONCE
