#include "tests/testkit/optimizer_test_util.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"

#include "common/base/random.h"
#include "common/config/config_problem.h"
#include "common/config/field_checker.h"
#include "common/config/optimizer_checks.h"
#include "common/optimizer/initial_state.h"
#include "kernels/bfloat16.h"

namespace pushpull {
namespace {

constexpr char kRate[] =
    "learning_rate { exponential_decay_learning_rate { initial_learning_rate: 0.03 decay_steps: 7 "
    "decay_factor: 0.8 } }";

std::vector<VariableSpec> Variables() {
  std::vector<VariableSpec> variables;
  variables.push_back(MakeVariable("conv/weights", {3, 3, 5, 7}));
  variables.back().l2_weight = 0.04f;
  variables.push_back(MakeVariable("conv/biases", {7}));
  variables.back().gradient_multiplier = 2.0f;
  variables.push_back(MakeVariable("bn/gamma", {33}));
  variables.push_back(MakeVariable("bn/moving_mean", {33}));
  variables.back().kind = VariableKind::kMovingStatistic;
  variables.back().moving_average_decay = 0.9f;
  variables.push_back(MakeVariable("frozen/weights", {10, 10}));
  variables.back().frozen = true;
  variables.push_back(MakeVariable("frozen/moving_mean", {5}));
  variables.back().kind = VariableKind::kMovingStatistic;
  variables.back().moving_average_decay = 0.5f;
  variables.back().frozen = true;
  variables.push_back(MakeVariable("dense/weights", {97, 103}));
  variables.back().l2_weight = 0.001f;
  variables.back().gradient_multiplier = 1.3f;
  variables.back().learning_rate_multiplier = 0.7f;
  variables.push_back(MakeVariable("scalar", {}));
  return variables;
}

std::shared_ptr<float> Aligned(int64_t elements) {
  return std::shared_ptr<float>(new (std::align_val_t(64)) float[elements](),
                                [](float* p) { operator delete[](p, std::align_val_t(64)); });
}

ReferenceStep StepOf(const OptimizerSpec& optimizer, uint64_t step, const VariableSpec& variable) {
  return {.t = static_cast<double>(step),
          .rate = optimizer.learning_rate.At(step - 1),
          .multiplier = variable.learning_rate_multiplier,
          .is_matrix = variable.shape.size() >= 2};
}

// The decay of tf.train.ExponentialMovingAverage, whose num_updates is the step.
double ReferenceEmaDecay(const OptimizerSpec& optimizer, uint64_t step) {
  if (!optimizer.ema_warmup) return optimizer.ema_decay;
  return std::min(optimizer.ema_decay, (1.0 + step) / (10.0 + step));
}

double SumOfSamples(const std::vector<FullGradient>& gradients) {
  double total = 0;
  for (const FullGradient& gradient : gradients) total += gradient.samples;
  return total;
}

}  // namespace

VariableSpec MakeVariable(const std::string& name, std::vector<int64_t> shape) {
  VariableSpec variable;
  variable.name = name;
  variable.shape = std::move(shape);
  return variable;
}

OptimizerSpec MakeOptimizer(const std::string& train_config) {
  config::TrainConfig config;
  CHECK(google::protobuf::TextFormat::ParseFromString(train_config, &config)) << train_config;
  FieldChecker checker;
  CheckOptimizer(config, &checker);
  CHECK(checker.problems().empty()) << ToString(checker.problems().front());
  return OptimizerSpec(config);
}

OptimizerSpec MakeOptimizer(const OptimizerReference& reference, const std::string& rest) {
  if (reference.outer) {
    return MakeOptimizer(absl::StrCat("optimizer { momentum_optimizer { ", kRate,
                                      " } moving_average_decay: 0.97 } local_steps: 2 "
                                      "outer_optimizer { learning_rate: ",
                                      kOuterRate, " ", reference.config, " } ", rest));
  }
  return MakeOptimizer(absl::StrCat("optimizer { ", reference.field, " { ", reference.config, " ",
                                    kRate, " } moving_average_decay: 0.97 } ", rest));
}

OptimizerSpec MakeMomentum() { return MakeOptimizer(ReferenceNamed("Momentum")); }
OptimizerSpec MakeRmsProp() { return MakeOptimizer(ReferenceNamed("RmsProp")); }
OptimizerSpec MakeAdam(const std::string& rest) {
  return MakeOptimizer(ReferenceNamed("Adam"), rest);
}

VariableLayout MakeLayout() { return *VariableLayout::Create(Variables()); }

VariableLayout MakeLargeLayout() {
  std::vector<VariableSpec> variables = Variables();
  variables.push_back(MakeVariable("classifier/weights", {601, 1003}));
  variables.push_back(MakeVariable("classifier/biases", {1003}));
  return *VariableLayout::Create(std::move(variables));
}

OwnedState::OwnedState(int64_t elements, const OptimizerSpec& optimizer)
    : elements_(elements), num_slots_(optimizer.num_slots()) {
  const int64_t vectors = 1 + num_slots_ + (optimizer.has_ema ? 1 : 0);
  const int64_t stride = (elements + 15) / 16 * 16;
  auto memory = Aligned(vectors * stride + 16);
  owner_ = memory;
  float* next = memory.get();
  const auto take = [&] { return std::exchange(next, next + stride); };
  vectors_.weights = take();
  for (int slot = 0; slot < num_slots_; ++slot) vectors_.slots[slot] = take();
  if (optimizer.has_ema) vectors_.ema = take();
}

float* OwnedState::vector(int i) const {
  if (i == 0) return vectors_.weights;
  return i <= num_slots_ ? vectors_.slots[i - 1] : vectors_.ema;
}

void OwnedState::AppendVector(int i, std::vector<float>* all) const {
  all->insert(all->end(), vector(i), vector(i) + elements_);
}

std::vector<float> OwnedState::Flatten() const {
  std::vector<float> all;
  for (int i = 0; i < num_vectors(); ++i) AppendVector(i, &all);
  return all;
}

void OwnedState::CopyFrom(const ConstStateVectors& from) const {
  std::copy_n(from.weights, elements_, vectors_.weights);
  for (int slot = 0; slot < num_slots_; ++slot) {
    std::copy_n(from.slots[slot], elements_, vectors_.slots[slot]);
  }
  if (vectors_.ema != nullptr) std::copy_n(from.ema, elements_, vectors_.ema);
}

ConstStateVectors OwnedState::From(int64_t element) const {
  ConstStateVectors view = vectors_.AsConst();
  view.weights += element;
  for (int slot = 0; slot < num_slots_; ++slot) view.slots[slot] += element;
  if (view.ema != nullptr) view.ema += element;
  return view;
}

OwnedState InitialState(const VariableLayout& layout, const OptimizerSpec& optimizer,
                        uint64_t seed) {
  OwnedState state(layout.total_elements(), optimizer);
  FillInitialState(
      layout, {0, layout.total_elements()}, optimizer,
      [&](int64_t variable, int64_t first, int64_t count, float* out) {
        CounterRandom random(seed, variable);
        for (int64_t i = 0; i < first + count; ++i) {
          const float value = random.NextFloat() * 2 - 1;
          if (i >= first) out[i - first] = value;
        }
      },
      state.vectors());
  return state;
}

FullGradient RandomGradient(const VariableLayout& layout, uint32_t replica, uint64_t samples,
                            uint64_t seed, float scale) {
  FullGradient gradient{replica, samples, std::vector<float>(layout.total_elements())};
  CounterRandom random(seed, replica);
  for (float& value : gradient.values) value = (random.NextFloat() * 2 - 1) * scale;
  return gradient;
}

std::vector<GradientContribution> CutContributions(const std::vector<FullGradient>& gradients,
                                                   const Sharding& sharding, int shard,
                                                   int misalign, uint32_t halves) {
  std::vector<GradientContribution> contributions;
  for (const FullGradient& gradient : gradients) {
    GradientContribution contribution{gradient.replica, gradient.samples, {}};
    for (int i = 0; i < sharding.num_chunks(shard); ++i) {
      const ElementRange range = sharding.chunk(shard, i);
      const bool as_halves = (halves >> contributions.size() & 1) != 0;
      const size_t size = range.size() * (as_halves ? sizeof(Bfloat16) : sizeof(float));
      const size_t skip = (misalign + i) % 64;
      std::shared_ptr<char[]> bytes(new char[skip + size]);
      const float* const values = gradient.values.data() + range.begin;
      if (as_halves) {
        for (int64_t e = 0; e < range.size(); ++e) {
          const Bfloat16 half = ToBfloat16(values[e]);
          std::memcpy(bytes.get() + skip + e * sizeof(half), &half, sizeof(half));
        }
      } else {
        std::memcpy(bytes.get() + skip, values, size);
      }
      contribution.chunks.push_back(
          {as_halves ? ps::BFLOAT16 : ps::FLOAT32, {bytes, bytes.get() + skip, size}});
    }
    contributions.push_back(std::move(contribution));
  }
  return contributions;
}

void OracleApply(const VariableLayout& layout, const OptimizerSpec& optimizer,
                 const OptimizerReference& reference, uint64_t step,
                 const std::vector<FullGradient>& gradients,
                 const std::vector<double>& squared_norms, const ConstStateVectors& from,
                 const StateVectors& to) {
  const double total = SumOfSamples(gradients);
  const float one_minus_ema_decay =
      optimizer.has_ema ? static_cast<float>(1 - ReferenceEmaDecay(optimizer, step)) : 0.0f;
  double global = 0;
  for (const double norm : squared_norms) global += norm;
  for (int64_t v = 0; v < layout.num_variables(); ++v) {
    const VariableSpec& variable = layout.variables()[v];
    float clip = 1.0f;
    if (optimizer.clipping != ClippingKind::kNone) {
      const double norm =
          std::sqrt(optimizer.clipping == ClippingKind::kGlobal ? global : squared_norms[v]);
      if (norm > optimizer.clip_norm) clip = static_cast<float>(optimizer.clip_norm / norm);
    }
    ReferenceStep now = StepOf(optimizer, step, variable);
    if (reference.update != nullptr) {
      const double update = squared_norms[layout.num_variables() + v];
      if (squared_norms[v] > 0 && update > 0) {
        now.ratio = std::sqrt(squared_norms[v]) / std::sqrt(update);
      }
    }
    for (int64_t i = layout.offset(v); i < layout.offset(v) + layout.num_elements(v); ++i) {
      const float w = from.weights[i];
      if (variable.frozen || total == 0) {
        to.weights[i] = w;
        for (int s = 0; s < optimizer.num_slots(); ++s) to.slots[s][i] = from.slots[s][i];
        if (!optimizer.has_ema) continue;
        to.ema[i] = from.ema[i];
        if (total == 0 || variable.kind == VariableKind::kMovingStatistic) continue;
        to.ema[i] = std::fma(w - from.ema[i], one_minus_ema_decay, from.ema[i]);
        continue;
      }
      float g = 0;
      bool first = true;
      for (const FullGradient& gradient : gradients) {
        if (gradient.samples == 0) continue;
        const float ratio = static_cast<float>(gradient.samples / total);
        g = first ? ratio * gradient.values[i] : std::fma(ratio, gradient.values[i], g);
        first = false;
      }
      if (variable.kind == VariableKind::kMovingStatistic) {
        to.weights[i] = std::fma(static_cast<float>(1.0 - variable.moving_average_decay), g - w, w);
        if (optimizer.has_ema) to.ema[i] = to.weights[i];
        continue;
      }
      g = std::fma(variable.l2_weight, w, g);
      g = g * variable.gradient_multiplier;
      g = g * clip;
      float slots[kMaxSlots] = {};
      for (int s = 0; s < optimizer.num_slots(); ++s) slots[s] = from.slots[s][i];
      const float updated = reference.in_float(now, w, g, slots);
      for (int s = 0; s < optimizer.num_slots(); ++s) to.slots[s][i] = slots[s];
      to.weights[i] = updated;
      if (optimizer.has_ema) {
        to.ema[i] = std::fma(updated - from.ema[i], one_minus_ema_decay, from.ema[i]);
      }
    }
  }
}

DoubleState ToDouble(const OwnedState& state, const OptimizerSpec& optimizer, int64_t elements) {
  const ConstStateVectors view = state.view();
  DoubleState result;
  result.weights.assign(view.weights, view.weights + elements);
  for (int s = 0; s < optimizer.num_slots(); ++s) {
    result.slots[s].assign(view.slots[s], view.slots[s] + elements);
  }
  if (optimizer.has_ema) result.ema.assign(view.ema, view.ema + elements);
  return result;
}

void DoubleApply(const VariableLayout& layout, const OptimizerSpec& optimizer,
                 const OptimizerReference& reference, uint64_t step,
                 const std::vector<FullGradient>& gradients, DoubleState* state) {
  const double total = SumOfSamples(gradients);
  std::vector<double> mean(layout.total_elements(), 0.0);
  std::vector<double> squared(layout.num_variables(), 0.0);
  for (int64_t v = 0; v < layout.num_variables(); ++v) {
    const VariableSpec& variable = layout.variables()[v];
    for (int64_t i = layout.offset(v); i < layout.offset(v) + layout.num_elements(v); ++i) {
      for (const FullGradient& gradient : gradients) {
        mean[i] += gradient.samples / total * gradient.values[i];
      }
      if (!OptimizerSpec::Updates(variable)) continue;
      mean[i] += variable.l2_weight * state->weights[i];
      mean[i] *= variable.gradient_multiplier;
      squared[v] += mean[i] * mean[i];
    }
  }
  double global = 0;
  for (const double norm : squared) global += norm;
  for (int64_t v = 0; v < layout.num_variables(); ++v) {
    const VariableSpec& variable = layout.variables()[v];
    if (variable.frozen) continue;
    const double norm =
        std::sqrt(optimizer.clipping == ClippingKind::kGlobal ? global : squared[v]);
    const bool clips = optimizer.clipping != ClippingKind::kNone && norm > optimizer.clip_norm;
    ReferenceStep now = StepOf(optimizer, step, variable);
    now.rate *= variable.learning_rate_multiplier;
    if (reference.update != nullptr && OptimizerSpec::Updates(variable) && now.is_matrix) {
      double weights = 0;
      double update = 0;
      for (int64_t i = layout.offset(v); i < layout.offset(v) + layout.num_elements(v); ++i) {
        double slots[kMaxSlots] = {state->slots[0][i], state->slots[1][i]};
        const double u = reference.update(now, state->weights[i], mean[i], slots);
        weights += state->weights[i] * state->weights[i];
        update += u * u;
      }
      now.ratio = std::sqrt(weights / update);
    }
    for (int64_t i = layout.offset(v); i < layout.offset(v) + layout.num_elements(v); ++i) {
      double& w = state->weights[i];
      const double g = clips ? mean[i] * optimizer.clip_norm / norm : mean[i];
      if (variable.kind == VariableKind::kMovingStatistic) {
        w = variable.moving_average_decay * w + (1 - variable.moving_average_decay) * mean[i];
        if (optimizer.has_ema) state->ema[i] = w;
        continue;
      }
      double slots[kMaxSlots] = {};
      for (int s = 0; s < optimizer.num_slots(); ++s) slots[s] = state->slots[s][i];
      w = reference.in_double(now, w, g, slots);
      for (int s = 0; s < optimizer.num_slots(); ++s) state->slots[s][i] = slots[s];
      if (optimizer.has_ema) {
        const double decay = ReferenceEmaDecay(optimizer, step);
        state->ema[i] = decay * state->ema[i] + (1 - decay) * w;
      }
    }
  }
}

}  // namespace pushpull
