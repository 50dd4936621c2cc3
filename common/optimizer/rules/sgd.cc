// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// clang-format off
// Stochastic gradient descent. No slots.
//
//   w' = w - lr * g
// clang-format on
#include <memory>

#include "common/optimizer/rules/all_rules.h"
#include "common/optimizer/rules/elementwise_update.h"

namespace pushpull {
namespace {

struct SgdStep {
  static constexpr int kSlots = 0;
  Lanes rate;

  Lanes operator()(Lanes w, Lanes g, Lanes* /*slots*/) const { return FmaNegated(rate, g, w); }
};

class Sgd final : public OptimizerRule {
 public:
  Sgd() : OptimizerRule({}) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t /*step*/, float learning_rate) const override {
    return MakeElementwise(SgdStep{Broadcast(learning_rate)});
  }
};

}  // namespace

RulePointer MakeSgdRule() { return std::make_shared<Sgd>(); }

}  // namespace pushpull
