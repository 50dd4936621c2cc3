#include "common/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "common/optimizer/rules/all_rules.h"

namespace pushpull {

const char kEmaName[] = "ExponentialMovingAverage";

namespace {

RulePointer RuleOf(const config::TrainConfig& config) {
  if (HasLocalSteps(config)) return MakeRule(config.outer_optimizer());
  return VisitOptimizer(config.optimizer(), [](const auto& chosen) { return MakeRule(chosen); });
}

config::LearningRate LearningRateOf(const config::TrainConfig& config) {
  if (!HasLocalSteps(config)) {
    return VisitOptimizer(config.optimizer(),
                          [](const auto& chosen) { return chosen.learning_rate(); });
  }
  config::LearningRate rate;
  rate.mutable_constant_learning_rate()->set_learning_rate(
      config.outer_optimizer().learning_rate());
  return rate;
}

}  // namespace

bool HasLocalSteps(const config::TrainConfig& config) { return config.local_steps() > 1; }

VariableLayout LayoutOfLocalSteps(const VariableLayout& layout, uint32_t local_steps) {
  std::vector<VariableSpec> variables = layout.variables();
  for (VariableSpec& variable : variables) {
    variable.l2_weight = 0.0f;
    variable.gradient_multiplier = 1.0f;
    variable.learning_rate_multiplier = 1.0f;
    variable.moving_average_decay =
        static_cast<float>(std::pow(double{variable.moving_average_decay}, local_steps));
  }
  return *VariableLayout::Create(std::move(variables));
}

OptimizerSpec OptimizerSpec::OfLocalSteps(const config::TrainConfig& config) {
  config::TrainConfig inner = config;
  inner.clear_local_steps();
  inner.mutable_optimizer()->set_use_moving_average(false);
  return OptimizerSpec(inner);
}

OptimizerSpec::OptimizerSpec(const config::TrainConfig& config)
    : rule(RuleOf(config)),
      learning_rate(LearningRateOf(config)),
      has_ema(config.optimizer().use_moving_average()) {
  if (has_ema) {
    ema_decay = config.optimizer().moving_average_decay();
    ema_warmup = config.optimizer().moving_average_warmup();
  }
  if (HasLocalSteps(config)) return;  // clones clip the gradient of each mini-batch
  if (config.gradient_clipping_by_norm() > 0) {
    clipping = ClippingKind::kPerTensor;
    clip_norm = config.gradient_clipping_by_norm();
  } else if (config.gradient_clipping_by_global_norm() > 0) {
    clipping = ClippingKind::kGlobal;
    clip_norm = config.gradient_clipping_by_global_norm();
  }
}

bool OptimizerSpec::Updates(const VariableSpec& variable) {
  return variable.kind == VariableKind::kTrainable && !variable.frozen;
}

double OptimizerSpec::EmaDecayAt(uint64_t step) const {
  if (!ema_warmup) return ema_decay;
  const double t = static_cast<double>(step);
  return std::min(ema_decay, (1.0 + t) / (10.0 + t));
}

}  // namespace pushpull
