// Tested by tests/common/optimizer/optimizer_golden_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
// clang-format off
// Stochastic gradient descent. No slots.
//
//   w' = w - lr * g
// clang-format on
#include <memory>

#include "common/base/cpu_isa.h"
#include "common/optimizer/rules/all_rules.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/optimizer/rules/sgd.cc"
#include "hwy/foreach_target.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "common/optimizer/rules/elementwise_update.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

struct SgdStep {
  static constexpr int kSlots = 0;
  Lanes rate;

  HWY_INLINE Lanes operator()(Lanes w, Lanes g, Lanes* /*slots*/) const {
    return FmaNegated(rate, g, w);
  }
};

std::unique_ptr<const StepUpdate> AtStep(float learning_rate) {
  return MakeElementwise(SgdStep{Broadcast(learning_rate)});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {
namespace {

class Sgd final : public OptimizerRule {
 public:
  Sgd() : OptimizerRule({}) {}

  std::unique_ptr<const StepUpdate> AtStep(uint64_t /*step*/, float learning_rate) const override {
    return PUSHPULL_FOR_CHOSEN_ISA(AtStep)(learning_rate);
  }
};

}  // namespace

RulePointer MakeSgdRule() { return std::make_shared<Sgd>(); }

}  // namespace pushpull
#endif  // HWY_ONCE
