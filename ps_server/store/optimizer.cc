#include "ps_server/store/optimizer.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/config/field_checker.h"
#include "common/config/optimizer_checks.h"
#include "ps_server/store/optimizers/all_rules.h"

namespace pushpull {

const char kEmaName[] = "ExponentialMovingAverage";

absl::StatusOr<OptimizerSpec> OptimizerSpec::Create(const config::TrainConfig& config) {
  const config::Optimizer& optimizer = config.optimizer();
  FieldChecker checker;
  CheckOptimizer(config, &checker);
  PP_RETURN_IF_ERROR(ProblemsToStatus("train_config", checker.problems()));
  // CheckOptimizer has reported the schedule's problems under their full names already.
  const auto rate_of = [](const auto& chosen) { return chosen.learning_rate(); };
  PP_ASSIGN_OR_RETURN(
      LearningRateSchedule schedule,
      LearningRateSchedule::Create(VisitOptimizer(optimizer, rate_of), "learning_rate"));
  const auto make_rule = [](const auto& chosen) { return MakeRule(chosen); };
  OptimizerSpec spec(VisitOptimizer(optimizer, make_rule), std::move(schedule));
  spec.has_ema = optimizer.use_moving_average();
  if (spec.has_ema) spec.ema_decay = optimizer.moving_average_decay();
  if (config.gradient_clipping_by_norm() > 0) {
    spec.clipping = ClippingKind::kPerTensor;
    spec.clip_norm = config.gradient_clipping_by_norm();
  } else if (config.gradient_clipping_by_global_norm() > 0) {
    spec.clipping = ClippingKind::kGlobal;
    spec.clip_norm = config.gradient_clipping_by_global_norm();
  }
  return spec;
}

bool OptimizerSpec::Updates(const VariableSpec& variable) {
  return variable.kind == VariableKind::kTrainable && !variable.frozen;
}

}  // namespace pushpull
