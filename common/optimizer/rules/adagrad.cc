// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// clang-format off
// Adagrad: tf.train.AdagradOptimizer (TensorFlow 1, ApplyAdagrad), after Duchi, Hazan and Singer,
// 2011. Slot s (sum of squares, initially initial_accumulator_value), which is never 0.
//
//   s' = s + g^2
//   w' = w - lr * g / sqrt(s')
// clang-format on
#include <memory>

#include "common/optimizer/rules/all_rules.h"
#include "common/optimizer/rules/elementwise_update.h"

namespace pushpull {
namespace {

struct AdagradStep {
  static constexpr int kSlots = 1;
  Lanes rate;

  Lanes operator()(Lanes w, Lanes g, Lanes* slots) const {
    Lanes& s = slots[0];
    s = Fma(g, g, s);
    return w - (g * rate) / Sqrt(s);
  }
};

class Adagrad final : public OptimizerRule {
 public:
  explicit Adagrad(const config::AdagradOptimizer& config)
      : OptimizerRule({{"Adagrad", config.initial_accumulator_value()}}) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t /*step*/, float learning_rate) const override {
    return MakeElementwise(AdagradStep{Broadcast(learning_rate)});
  }
};

}  // namespace

RulePointer MakeRule(const config::AdagradOptimizer& config) {
  return std::make_shared<Adagrad>(config);
}

}  // namespace pushpull
