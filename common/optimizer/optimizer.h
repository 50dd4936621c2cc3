// clang-format off
// Describes what an update does to one variable: the optimizer's rule, its learning rate, gradient
// clipping, the moving average of the weights (EMA), and the names under which the state is stored.
// A value type, immutable. The formula of each rule is in its file in rules/.
//
// A job with train_config.local_steps above 1 has two optimizers: clones update weights of their
// own by train_config.optimizer, and the server applies the mean of their differences by
// outer_optimizer.
//
// EMA: tf.train.ExponentialMovingAverage. e is the average of the weight w.
//
//   e' = e + (1 - decay) * (w' - e)
//   decay = moving_average_decay
//   decay = min(moving_average_decay, (1 + t) / (10 + t))      with moving_average_warmup, where t is
//                                                              the version being made; in TensorFlow
//                                                              the argument num_updates
// clang-format on
#ifndef PUSHPULL_COMMON_OPTIMIZER_OPTIMIZER_H_
#define PUSHPULL_COMMON_OPTIMIZER_OPTIMIZER_H_

#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"

#include "common/model/variable_layout.h"
#include "common/optimizer/learning_rate.h"
#include "common/optimizer/rules/optimizer_rule.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

enum class ClippingKind { kNone, kPerTensor, kGlobal };

struct OptimizerSpec {
  // The server's. `config` has passed CheckOptimizer (common/config/optimizer_checks.h).
  explicit OptimizerSpec(const config::TrainConfig& config);
  // That of the clones' local steps: train_config.optimizer, without the EMA.
  static OptimizerSpec OfLocalSteps(const config::TrainConfig& config);

  int num_slots() const { return static_cast<int>(rule->slots().size()); }
  // 0 <= slot < num_slots().
  absl::string_view slot_name(int slot) const { return rule->slots().at(slot).name; }
  // Returns whether norms have to be measured before an update: to clip, or for the rule.
  bool measures_norms() const { return clipping != ClippingKind::kNone || rule->needs_norms(); }
  // Returns whether the optimizer updates the variable: it is trainable and not frozen. A frozen
  // variable and its slots never change, but its EMA still moves towards its value. A moving
  // statistic has its own rule (apply_pass.h); its slots are zero, and its EMA is its value, so
  // that weights and EMA are both complete models.
  static bool Updates(const VariableSpec& variable);
  // Returns the decay of the EMA with which version `step` (>= 1) is made.
  double EmaDecayAt(uint64_t step) const;

  std::shared_ptr<const OptimizerRule> rule;  // never null
  LearningRateSchedule learning_rate;
  bool has_ema = false;
  double ema_decay = 0.0;   // the highest one
  bool ema_warmup = false;  // the decay begins lower
  ClippingKind clipping = ClippingKind::kNone;
  double clip_norm = 0.0;
};

// Returns whether a step is a round of several mini-batches.
bool HasLocalSteps(const config::TrainConfig& config);

// Returns the layout with which the server applies the contributions of local steps
// (worker/client/local_steps_source.h). L2 weights and multipliers have taken part in the
// differences of the weights already, so the former are 0 here and the latter 1. A moving statistic
// moves once for all mini-batches of the round, so its decay is moving_average_decay^local_steps.
VariableLayout LayoutOfLocalSteps(const VariableLayout& layout, uint32_t local_steps);

// "ExponentialMovingAverage"
extern const char kEmaName[];

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_OPTIMIZER_OPTIMIZER_H_
