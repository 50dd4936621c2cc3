#include "ps_server/store/optimizer.h"

#include <utility>

#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/config/config_problem.h"
#include "common/config/field_checker.h"
#include "common/config/optimizer_checks.h"

namespace pushpull {
namespace {

const config::LearningRate& LearningRateOf(const config::Optimizer& optimizer) {
  if (optimizer.has_momentum_optimizer()) return optimizer.momentum_optimizer().learning_rate();
  if (optimizer.has_rms_prop_optimizer()) return optimizer.rms_prop_optimizer().learning_rate();
  return optimizer.adam_optimizer().learning_rate();
}

}  // namespace

const char kEmaName[] = "ExponentialMovingAverage";

absl::StatusOr<OptimizerSpec> OptimizerSpec::Create(const config::TrainConfig& config) {
  const config::Optimizer& optimizer = config.optimizer();
  FieldChecker checker;
  CheckOptimizer(config, &checker);
  PP_RETURN_IF_ERROR(ProblemsToStatus("train_config", checker.problems()));
  // CheckOptimizer has reported the schedule's problems under their full names already.
  PP_ASSIGN_OR_RETURN(LearningRateSchedule schedule,
                      LearningRateSchedule::Create(LearningRateOf(optimizer), "learning_rate"));
  OptimizerSpec spec(std::move(schedule));
  if (optimizer.has_momentum_optimizer()) {
    spec.kind = OptimizerKind::kMomentum;
    spec.momentum = optimizer.momentum_optimizer().momentum_optimizer_value();
  } else if (optimizer.has_rms_prop_optimizer()) {
    spec.kind = OptimizerKind::kRmsProp;
    spec.momentum = optimizer.rms_prop_optimizer().momentum_optimizer_value();
    spec.decay = optimizer.rms_prop_optimizer().decay();
    spec.epsilon = optimizer.rms_prop_optimizer().epsilon();
  } else {
    spec.kind = OptimizerKind::kAdam;
    spec.epsilon = optimizer.adam_optimizer().epsilon();
  }
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

int OptimizerSpec::num_slots() const { return kind == OptimizerKind::kMomentum ? 1 : 2; }

absl::string_view OptimizerSpec::slot_name(int slot) const {
  CHECK(slot >= 0 && slot < num_slots()) << slot;
  switch (kind) {
    case OptimizerKind::kMomentum:
      return "Momentum";
    case OptimizerKind::kRmsProp:
      return slot == 0 ? "RMSProp" : "RMSProp_1";
    case OptimizerKind::kAdam:
      return slot == 0 ? "Adam" : "Adam_1";
  }
  LOG(FATAL) << "optimizer kind " << static_cast<int>(kind);
}

float OptimizerSpec::slot_initial_value(int slot) const {
  return kind == OptimizerKind::kRmsProp && slot == 0 ? 1.0f : 0.0f;
}

bool OptimizerSpec::Updates(const VariableSpec& variable) {
  return variable.kind == VariableKind::kTrainable && !variable.frozen;
}

}  // namespace pushpull
