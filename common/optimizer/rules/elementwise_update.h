// clang-format off
// The loop that all optimizers of this folder share; included by their .cc files only, once per
// instruction set (common/optimizer/lanes.h). An optimizer gives a small struct with the constants of its step, for example
//
//   struct MomentumStep {
//     static constexpr int kSlots = 1;
//     Lanes momentum, rate;                    // rate: the factor of the whole update, or part of it
//     Lanes operator()(Lanes w, Lanes g, Lanes* slots) const;     // changes the slots, returns w'
//   };
//
// The variable's learning_rate_multiplier scales `rate`, so every struct has that member. A struct
// with other constants that differ from variable to variable has a method besides:
//
//     Step ForRun(const UpdateRun& run) const;
//
// The compiler makes one loop of it, with and without EMA, that loads and stores each element once.
// A step is bound by memory, not by arithmetic.
//
//   gradient   g  = fma(l2_weight, w, averaged gradient) * gradient_multiplier * clip   left to right
//   EMA        e' = fma(w' - e, one_minus_ema_decay, e)
// clang-format on
#if defined(PUSHPULL_COMMON_OPTIMIZER_RULES_ELEMENTWISE_UPDATE_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_COMMON_OPTIMIZER_RULES_ELEMENTWISE_UPDATE_H_
#undef PUSHPULL_COMMON_OPTIMIZER_RULES_ELEMENTWISE_UPDATE_H_
#else
#define PUSHPULL_COMMON_OPTIMIZER_RULES_ELEMENTWISE_UPDATE_H_
#endif

#include <algorithm>
#include <array>
#include <memory>

#include "common/optimizer/lanes.h"
#include "common/optimizer/rules/optimizer_rule.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

// Makes g of the averaged gradient and the weight.
struct GradientScale {
  explicit GradientScale(const UpdateRun& run)
      : l2(Broadcast(run.variable->l2_weight)),
        multiplier(Broadcast(run.variable->gradient_multiplier)),
        clip(Broadcast(run.clip)) {}
  HWY_INLINE Lanes Apply(Lanes average, Lanes w) const {
    return Fma(l2, w, average) * multiplier * clip;
  }

  const Lanes l2, multiplier, clip;
};

template <typename Step>
class ElementwiseUpdate : public StepUpdate {
 public:
  explicit ElementwiseUpdate(const Step& step) : step_(step) {}

  void Run(const UpdateRun& run) const override {
    if (run.to.ema != nullptr) {
      Loop<true>(run);
    } else {
      Loop<false>(run);
    }
  }

 protected:
  Step StepFor(const UpdateRun& run) const {
    Step step = step_;
    if constexpr (requires { step_.ForRun(run); }) step = step_.ForRun(run);
    step.rate = step.rate * Broadcast(run.variable->learning_rate_multiplier);
    return step;
  }

 private:
  template <bool kEma>
  void Loop(const UpdateRun& run) const {
    // A local copy can stay in registers, because no store of the loop may change it.
    const Step step = StepFor(run);
    const GradientScale scale(run);
    const Lanes one_minus_ema_decay = Broadcast(run.one_minus_ema_decay);
    const float* const gradient = run.gradient;
    const float* const w_from = run.from.weights + run.at;
    float* const w_to = run.to.weights + run.at;
    const float* const e_from = kEma ? run.from.ema + run.at : nullptr;
    float* const e_to = kEma ? run.to.ema + run.at : nullptr;
    std::array<const float*, Step::kSlots> slots_from;
    std::array<float*, Step::kSlots> slots_to;
    for (int s = 0; s < Step::kSlots; ++s) {
      slots_from[s] = run.from.slots[s] + run.at;
      slots_to[s] = run.to.slots[s] + run.at;
    }
    ForEachGroup(
        run.count, [&](int i, int remaining) HWY_ATTR __attribute__((always_inline)) {
          const Writer writer{remaining};
          Lanes slots[std::max(Step::kSlots, 1)];
          for (int s = 0; s < Step::kSlots; ++s) slots[s] = Load(slots_from[s] + i);
          Lanes w = Load(w_from + i);
          w = step(w, scale.Apply(Load(gradient + i), w), slots);
          for (int s = 0; s < Step::kSlots; ++s) writer.Store(slots_to[s] + i, slots[s]);
          writer.Store(w_to + i, w);
          if constexpr (kEma) {
            const Lanes e = Load(e_from + i);
            writer.Store(e_to + i, Fma(w - e, one_minus_ema_decay, e));
          }
        });
  }

  const Step step_;
};

template <typename Step>
std::unique_ptr<const StepUpdate> MakeElementwise(const Step& step) {
  return std::make_unique<ElementwiseUpdate<Step>>(step);
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_COMMON_OPTIMIZER_RULES_ELEMENTWISE_UPDATE_H_
