// Tested by tests/common/optimizer/optimizer_golden_test.cc.
#include "common/optimizer/rules/all_rules.h"

namespace pushpull {

RulePointer MakeRule(const config::OuterOptimizer& config) {
  if (config.momentum() == 0) return MakeSgdRule();
  if (config.momentum_every() > 1) {
    return MakeDelayedNesterovRule(config.momentum(), config.momentum_every());
  }
  // TensorFlow's form of Nesterov's momentum is that of PyTorch's SGD, which DiLoCo uses
  // (Douillard et al., 2023, arXiv:2311.08105, Algorithm 1).
  return MakeOuterMomentumRule(config.momentum(), config.use_nesterov());
}

}  // namespace pushpull
