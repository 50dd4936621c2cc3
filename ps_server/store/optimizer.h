// clang-format off
// Describes what an update does to one variable: the optimizer's rule with its numbers, gradient
// clipping, the moving average of the weights (EMA), and the names under which the state is stored.
// A value type, immutable after Create.
//
// In the formulas below, x' is the new value of x; w is the weight; g is the gradient after
// averaging, L2, multiplier and clipping (apply_pass.h); t is the version being made, counted from
// 1; lr is learning_rate.At(t - 1). All state is float32. apply_kernels.h gives the rounding.
//
// Momentum: tf.train.MomentumOptimizer without Nesterov (TensorFlow 1, ApplyMomentum). Slot a.
//
//   a' = momentum * a + g
//   w' = w - lr * a'
//
// RMSProp: tf.train.RMSPropOptimizer, not centered (TensorFlow 1, ApplyRMSProp), after Tieleman and
// Hinton, Lecture 6.5, 2012. Slots s (mean square, initially 1) and m (momentum). epsilon is inside
// the root, and m already contains lr.
//
//   s' = s + (1 - decay) * (g^2 - s)
//   m' = momentum * m + lr * g / sqrt(s' + epsilon)
//   w' = w - m'
//
// Adam: tf.train.AdamOptimizer (TensorFlow 1, ApplyAdam), after Kingma and Ba, 2015
// (arXiv:1412.6980), in the form given just before its section 2.1: epsilon is outside the root and
// is the paper's epsilon-hat. Slots m and v.
//
//   m'   = m + (1 - beta1) * (g - m)
//   v'   = v + (1 - beta2) * (g^2 - v)
//   lr_t = lr * sqrt(1 - beta2^t) / (1 - beta1^t)       in double, then rounded to float
//   w'   = w - lr_t * m' / (sqrt(v') + epsilon)
//
// EMA: tf.train.ExponentialMovingAverage without num_updates. e is the average of w.
//
//   e' = e + (1 - moving_average_decay) * (w' - e)
// clang-format on
#ifndef PUSHPULL_PS_SERVER_STORE_OPTIMIZER_H_
#define PUSHPULL_PS_SERVER_STORE_OPTIMIZER_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/model/variable_layout.h"
#include "protos/pipeline.pb.h"
#include "ps_server/store/learning_rate.h"

namespace pushpull {

enum class OptimizerKind { kMomentum, kRmsProp, kAdam };
enum class ClippingKind { kNone, kPerTensor, kGlobal };

struct OptimizerSpec {
  static constexpr int kMaxSlots = 2;

  // INVALID_ARGUMENT: lists every problem, one per line, each naming its field from "train_config."
  // on.
  static absl::StatusOr<OptimizerSpec> Create(const config::TrainConfig& config);

  // Returns the number of slots per variable: 1 for momentum, 2 for RMSProp and Adam.
  int num_slots() const;
  // Returns TensorFlow's name of the slot, 0 <= slot < num_slots(): "Momentum" (a); "RMSProp" (s),
  // "RMSProp_1" (m); "Adam" (m), "Adam_1" (v).
  absl::string_view slot_name(int slot) const;
  // Returns 1 for RMSProp's mean square, 0 for all other slots.
  float slot_initial_value(int slot) const;
  // Returns whether the optimizer updates the variable: it is trainable and not frozen. A frozen
  // variable never changes, nor do its slots and EMA. A moving statistic has its own rule
  // (apply_pass.h); its slots are zero, and its EMA is its value, so that weights and EMA are both
  // complete models.
  static bool Updates(const VariableSpec& variable);

  OptimizerKind kind = OptimizerKind::kMomentum;
  LearningRateSchedule learning_rate;
  double momentum = 0.0;  // Momentum, RMSProp
  double decay = 0.0;     // RMSProp
  double beta1 = 0.9;     // Adam
  double beta2 = 0.999;   // Adam
  double epsilon = 0.0;   // inside the root for RMSProp, outside for Adam
  bool has_ema = false;
  double ema_decay = 0.0;
  ClippingKind clipping = ClippingKind::kNone;
  double clip_norm = 0.0;

 private:
  explicit OptimizerSpec(LearningRateSchedule schedule) : learning_rate(std::move(schedule)) {}
};

// "ExponentialMovingAverage"
extern const char kEmaName[];

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_OPTIMIZER_H_
