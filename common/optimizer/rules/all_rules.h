// The list of all optimizers: one function per message of the oneof in config::Optimizer, each
// defined in the file of the optimizer's name, and the lookup by the config's choice; and those of
// config::OuterOptimizer. The messages have passed CheckOptimizer
// (common/config/optimizer_checks.h).
#ifndef PUSHPULL_COMMON_OPTIMIZER_RULES_ALL_RULES_H_
#define PUSHPULL_COMMON_OPTIMIZER_RULES_ALL_RULES_H_

#include <cstdint>
#include <memory>

#include "common/optimizer/rules/optimizer_rule.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

using RulePointer = std::shared_ptr<const OptimizerRule>;

RulePointer MakeRule(const config::MomentumOptimizer& config);
RulePointer MakeRule(const config::RMSPropOptimizer& config);
RulePointer MakeRule(const config::AdamOptimizer& config);
RulePointer MakeRule(const config::AdamWOptimizer& config);
RulePointer MakeRule(const config::AdagradOptimizer& config);
RulePointer MakeRule(const config::LambOptimizer& config);

RulePointer MakeSgdRule();
// momentum_every >= 1.
RulePointer MakeDelayedNesterovRule(float momentum, uint32_t momentum_every);
// The rule of MomentumOptimizer for differences. Its slot has a name of its own, because a sum of
// differences is no sum of gradients.
RulePointer MakeOuterMomentumRule(float momentum, bool use_nesterov);
// Returns one of these three.
RulePointer MakeRule(const config::OuterOptimizer& config);

// Calls visit with the message that the config chose and returns its result; returns a
// default-made result if the config chose none. An optimizer without a case does not compile.
template <typename Visit>
auto VisitOptimizer(const config::Optimizer& config, const Visit& visit)
    -> decltype(visit(config.momentum_optimizer())) {
  switch (config.optimizer_case()) {
    case config::Optimizer::kMomentumOptimizer:
      return visit(config.momentum_optimizer());
    case config::Optimizer::kRmsPropOptimizer:
      return visit(config.rms_prop_optimizer());
    case config::Optimizer::kAdamOptimizer:
      return visit(config.adam_optimizer());
    case config::Optimizer::kAdamwOptimizer:
      return visit(config.adamw_optimizer());
    case config::Optimizer::kAdagradOptimizer:
      return visit(config.adagrad_optimizer());
    case config::Optimizer::kLambOptimizer:
      return visit(config.lamb_optimizer());
    case config::Optimizer::OPTIMIZER_NOT_SET:
      break;
  }
  return {};
}

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_OPTIMIZER_RULES_ALL_RULES_H_
