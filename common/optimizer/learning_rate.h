// The learning-rate schedules of the pipeline config, as pure functions of the step. Immutable,
// copyable, thread-safe.
//
// As with TensorFlow's global_step, `step` counts the updates applied before the update that uses
// the rate: version t is made with At(t - 1), and the first update of a run uses At(0).
#ifndef PUSHPULL_COMMON_OPTIMIZER_LEARNING_RATE_H_
#define PUSHPULL_COMMON_OPTIMIZER_LEARNING_RATE_H_

#include <cstdint>
#include <utility>

#include "protos/pipeline.pb.h"

namespace pushpull {

class LearningRateSchedule {
 public:
  // `config` has passed CheckLearningRate (common/config/optimizer_checks.h).
  explicit LearningRateSchedule(config::LearningRate config) : config_(std::move(config)) {}

  // clang-format off
  // Returns the rate for the update after `step` updates. Computed in double and rounded once.
  // The schedules are those of utils/learning_schedules.py in TensorFlow's Object Detection API.
  //
  // constant      rate
  //
  // exponential   (exponential_decay_with_burnin), never below min_learning_rate:
  //   step < burnin_steps             burnin_learning_rate, or the initial rate if that is 0
  //   else                            initial * factor^((step - burnin_steps) / decay_steps)
  //                                   with staircase, the exponent is rounded down
  //
  // manual_step   (manual_stepping)
  //   before the first entry's step   the initial rate; with warmup, linear from the initial rate
  //                                   at step 0 to the first entry's rate at the first entry's step
  //   else                            the rate of the last entry whose step has been reached
  //
  // cosine        (cosine_decay_with_warmup), with start = warmup_steps + hold_base_rate_steps:
  //   step > total_steps    0
  //   step < warmup_steps   warmup + (base - warmup) * step / warmup_steps
  //   step <= start         base
  //   else                  base / 2 * (1 + cos(pi * (step - start) / (total_steps - start)))
  // clang-format on
  float At(uint64_t step) const;

 private:
  config::LearningRate config_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_OPTIMIZER_LEARNING_RATE_H_
