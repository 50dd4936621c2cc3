#include "common/optimizer/optimizer.h"

#include <algorithm>

#include "common/optimizer/rules/all_rules.h"

namespace pushpull {

const char kEmaName[] = "ExponentialMovingAverage";

OptimizerSpec::OptimizerSpec(const config::TrainConfig& config)
    : rule(VisitOptimizer(config.optimizer(), [](const auto& chosen) { return MakeRule(chosen); })),
      learning_rate(VisitOptimizer(config.optimizer(),
                                   [](const auto& chosen) { return chosen.learning_rate(); })),
      has_ema(config.optimizer().use_moving_average()) {
  if (has_ema) {
    ema_decay = config.optimizer().moving_average_decay();
    ema_warmup = config.optimizer().moving_average_warmup();
  }
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
