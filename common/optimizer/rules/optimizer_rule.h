// What one optimizer is to the apply pass: its slots, and how one step updates a run of
// elements. Each optimizer has a file of its own in this folder, with its formula; all_rules.h
// lists them. Immutable and thread-safe.
//
// In the formulas of these files, x' is the new value of x; w is the weight; g is the gradient
// after averaging, L2, multiplier and clipping (apply_pass.h); t is the version being made, counted
// from 1; lr is the learning rate after t - 1 updates, times the variable's
// learning_rate_multiplier. All state is float32. The code beside a formula gives its rounding.
#ifndef PUSHPULL_COMMON_OPTIMIZER_RULES_OPTIMIZER_RULE_H_
#define PUSHPULL_COMMON_OPTIMIZER_RULES_OPTIMIZER_RULE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "glog/logging.h"

#include "common/model/variable_layout.h"
#include "common/optimizer/state_vectors.h"

namespace pushpull {

// A vector that the optimizer keeps beside the weights. The name enters checkpoints and state
// files, so it never changes; it is TensorFlow's name where TensorFlow has one.
struct SlotSpec {
  const char* name;
  float initial_value = 0.0f;  // of trainable variables; other variables' slots are zero
};

// Squared L2 norms of a variable, or of a run of its elements: of w, and of the rule's update u.
struct SquaredNorms {
  double weights = 0.0;
  double update = 0.0;
};

// A run of elements of one variable, within one page of the flat vector, and what its update needs.
struct UpdateRun {
  const VariableSpec* variable;
  float clip = 1.0f;        // scales the gradient
  SquaredNorms norms = {};  // of the whole variable; only for rules that need norms
  float one_minus_ema_decay = 0.0f;
  const float* gradient;  // averaged, as from AverageRun
  int64_t at;             // of the first element in `from` and `to`; a multiple of 16
  int count;              // at most kMaxRunElements (apply_kernels.h)
  ConstStateVectors from;
  StateVectors to;
};

// The update of one step.
class StepUpdate {
 public:
  virtual ~StepUpdate() = default;
  // Makes elements [at, at + count) of `to`: weights, slots and EMA. Elements from there up to the
  // next multiple of 16 become 0. The stores bypass the caches: StoreFence has to be called before
  // the result is handed to another thread.
  virtual void Run(const UpdateRun& run) const = 0;
  // Returns the norms over the run, which depend only on its values. `to` and `norms` are not used.
  // Called only if the rule needs norms.
  virtual SquaredNorms Measure(const UpdateRun& /*run*/) const { return {}; }
};

class OptimizerRule {
 public:
  virtual ~OptimizerRule() = default;
  // At most kMaxSlots.
  const std::vector<SlotSpec>& slots() const { return slots_; }
  // Returns whether an update needs the norms of its variable. They are measured in a pass of their
  // own before the update, and no chunk is updated before all have arrived.
  virtual bool needs_norms() const { return false; }
  // Returns the update that makes version `step` (>= 1) with the given learning rate.
  virtual std::unique_ptr<const StepUpdate> AtStep(uint64_t step, float learning_rate) const = 0;

 protected:
  explicit OptimizerRule(std::vector<SlotSpec> slots) : slots_(std::move(slots)) {
    CHECK_LE(slots_.size(), kMaxSlots);
  }

 private:
  const std::vector<SlotSpec> slots_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_OPTIMIZER_RULES_OPTIMIZER_RULE_H_
