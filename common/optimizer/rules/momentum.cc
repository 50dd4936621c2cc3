// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// clang-format off
// Momentum: tf.train.MomentumOptimizer (TensorFlow 1, ApplyMomentum). Slot a.
//
//   a' = momentum * a + g
//   w' = w - lr * a'                           without use_nesterov
//   w' = w - (lr * g + lr * momentum * a')     with use_nesterov
// clang-format on
#include <memory>

#include "common/optimizer/rules/all_rules.h"
#include "common/optimizer/rules/elementwise_update.h"

namespace pushpull {
namespace {

struct MomentumStep {
  static constexpr int kSlots = 1;
  Lanes momentum, rate;

  Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& a = slots[0];
    a = Fma(a, momentum, g);
    return FmaNegated(rate, a, w);
  }
};

struct NesterovStep {
  static constexpr int kSlots = 1;
  Lanes momentum, rate;

  Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& a = slots[0];
    a = Fma(a, momentum, g);
    return FmaNegated(rate, Fma(a, momentum, g), w);
  }
};

class Momentum final : public OptimizerRule {
 public:
  explicit Momentum(const config::MomentumOptimizer& config)
      : OptimizerRule({{"Momentum"}}),
        momentum_(config.momentum_optimizer_value()),
        use_nesterov_(config.use_nesterov()) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t /*step*/, float learning_rate) const override {
    const Lanes momentum = Broadcast(momentum_);
    const Lanes rate = Broadcast(learning_rate);
    if (use_nesterov_) return MakeElementwise(NesterovStep{momentum, rate});
    return MakeElementwise(MomentumStep{momentum, rate});
  }

 private:
  const float momentum_;
  const bool use_nesterov_;
};

}  // namespace

RulePointer MakeRule(const config::MomentumOptimizer& config) {
  return std::make_shared<Momentum>(config);
}

}  // namespace pushpull
