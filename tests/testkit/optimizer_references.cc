#include "tests/testkit/optimizer_references.h"

#include <cmath>

#include "glog/logging.h"

namespace pushpull {
namespace {

float Rounded(double value) { return static_cast<float>(value); }
// Returns a number of the config as the double of the same value. The config stores floats.
double Number(float value) { return value; }

// Returns a rate of the rules in float, as the apply pass rounds it.
float Scaled(const ReferenceStep& step, double rate) { return Rounded(rate) * step.multiplier; }

OptimizerReference Momentum() {
  return {.name = "Momentum",
          .field = "momentum_optimizer",
          .config = "momentum_optimizer_value: 0.9",
          .slots = {"Momentum"},
          .first_slot_initial_value = 0,
          .in_float =
              [](const ReferenceStep& step, float w, float g, float* slots) {
                slots[0] = std::fma(slots[0], 0.9f, g);
                return std::fma(-Scaled(step, step.rate), slots[0], w);
              },
          .in_double =
              [](const ReferenceStep& step, double w, double g, double* slots) {
                slots[0] = Number(0.9f) * slots[0] + g;
                return w - step.rate * slots[0];
              }};
}

OptimizerReference Nesterov() {
  return {.name = "Nesterov",
          .field = "momentum_optimizer",
          .config = "momentum_optimizer_value: 0.9 use_nesterov: true",
          .slots = {"Momentum"},
          .first_slot_initial_value = 0,
          .in_float =
              [](const ReferenceStep& step, float w, float g, float* slots) {
                slots[0] = std::fma(slots[0], 0.9f, g);
                return std::fma(-Scaled(step, step.rate), std::fma(slots[0], 0.9f, g), w);
              },
          .in_double =
              [](const ReferenceStep& step, double w, double g, double* slots) {
                slots[0] = Number(0.9f) * slots[0] + g;
                return w - (step.rate * g + step.rate * Number(0.9f) * slots[0]);
              }};
}

OptimizerReference RmsProp() {
  return {.name = "RmsProp",
          .field = "rms_prop_optimizer",
          .config = "momentum_optimizer_value: 0.8 decay: 0.95 epsilon: 0.01",
          .slots = {"RMSProp", "RMSProp_1"},
          .first_slot_initial_value = 1,
          .in_float =
              [](const ReferenceStep& step, float w, float g, float* slots) {
                slots[0] = std::fma(g * g - slots[0], Rounded(1 - Number(0.95f)), slots[0]);
                slots[1] = std::fma(slots[1], 0.8f,
                                    (g * Scaled(step, step.rate)) / std::sqrt(slots[0] + 0.01f));
                return w - slots[1];
              },
          .in_double =
              [](const ReferenceStep& step, double w, double g, double* slots) {
                const double decay = Number(0.95f);
                slots[0] = decay * slots[0] + (1 - decay) * g * g;
                slots[1] =
                    Number(0.8f) * slots[1] + step.rate * g / std::sqrt(slots[0] + Number(0.01f));
                return w - slots[1];
              }};
}

// Adam with the bias correction in TensorFlow's form.
double AdamRate(double rate, double t) {
  return rate * (std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)));
}

OptimizerReference Adam() {
  return {.name = "Adam",
          .field = "adam_optimizer",
          .config = "epsilon: 0.001",
          .slots = {"Adam", "Adam_1"},
          .first_slot_initial_value = 0,
          .in_float =
              [](const ReferenceStep& step, float w, float g, float* slots) {
                slots[0] = std::fma(g - slots[0], Rounded(1 - 0.9), slots[0]);
                slots[1] = std::fma(g * g - slots[1], Rounded(1 - 0.999), slots[1]);
                const float rate = Scaled(step, AdamRate(step.rate, step.t));
                return w - (slots[0] * rate) / (std::sqrt(slots[1]) + 0.001f);
              },
          .in_double =
              [](const ReferenceStep& step, double w, double g, double* slots) {
                slots[0] = 0.9 * slots[0] + 0.1 * g;
                slots[1] = 0.999 * slots[1] + 0.001 * g * g;
                return w - AdamRate(step.rate, step.t) * slots[0] /
                               (std::sqrt(slots[1]) + Number(0.001f));
              }};
}

// The parameters of AdamW and LAMB in these tests.
constexpr float kBeta1 = 0.8f;
constexpr float kBeta2 = 0.98f;
constexpr float kEpsilon = 0.001f;
constexpr float kDecay = 0.3f;
constexpr char kAdamWNumbers[] = "beta1: 0.8 beta2: 0.98 epsilon: 0.001 weight_decay: 0.3";

void MoveMoments(float g, float* slots) {
  slots[0] = std::fma(g - slots[0], Rounded(1 - Number(kBeta1)), slots[0]);
  slots[1] = std::fma(g * g - slots[1], Rounded(1 - Number(kBeta2)), slots[1]);
}
// Returns m_hat / (sqrt(v_hat) + epsilon), the step of the paper's Adam.
double AdamDirection(double t, double g, double* slots) {
  const double beta1 = kBeta1;
  const double beta2 = kBeta2;
  slots[0] = beta1 * slots[0] + (1 - beta1) * g;
  slots[1] = beta2 * slots[1] + (1 - beta2) * g * g;
  const double m_hat = slots[0] / (1 - std::pow(beta1, t));
  const double v_hat = slots[1] / (1 - std::pow(beta2, t));
  return m_hat / (std::sqrt(v_hat) + Number(kEpsilon));
}
float RootScale(double t) { return Rounded(1 / (1 - std::pow(Number(kBeta2), t))); }

OptimizerReference AdamW() {
  return {.name = "AdamW",
          .field = "adamw_optimizer",
          .config = kAdamWNumbers,
          .slots = {"AdamW", "AdamW_1"},
          .first_slot_initial_value = 0,
          .in_float =
              [](const ReferenceStep& step, float w, float g, float* slots) {
                MoveMoments(g, slots);
                const float rate = Scaled(step, step.rate / (1 - std::pow(Number(kBeta1), step.t)));
                const float decay =
                    step.is_matrix ? Scaled(step, step.rate * Number(kDecay)) : 0.0f;
                return std::fma(-decay, w, w) -
                       (slots[0] * rate) / (std::sqrt(slots[1] * RootScale(step.t)) + kEpsilon);
              },
          .in_double =
              [](const ReferenceStep& step, double w, double g, double* slots) {
                const double decayed = step.is_matrix ? w * (1 - step.rate * kDecay) : w;
                return decayed - step.rate * AdamDirection(step.t, g, slots);
              }};
}

OptimizerReference Adagrad() {
  return {.name = "Adagrad",
          .field = "adagrad_optimizer",
          .config = "initial_accumulator_value: 0.25",
          .slots = {"Adagrad"},
          .first_slot_initial_value = 0.25f,
          .in_float =
              [](const ReferenceStep& step, float w, float g, float* slots) {
                slots[0] = std::fma(g, g, slots[0]);
                return w - (g * Scaled(step, step.rate)) / std::sqrt(slots[0]);
              },
          .in_double =
              [](const ReferenceStep& step, double w, double g, double* slots) {
                slots[0] += g * g;
                return w - step.rate * g / std::sqrt(slots[0]);
              }};
}

double LambDirection(const ReferenceStep& step, double w, double g, double* slots) {
  return AdamDirection(step.t, g, slots) + (step.is_matrix ? kDecay * w : 0.0);
}

OptimizerReference Lamb() {
  return {.name = "Lamb",
          .field = "lamb_optimizer",
          .config = kAdamWNumbers,
          .slots = {"LAMB", "LAMB_1"},
          .first_slot_initial_value = 0,
          .in_float =
              [](const ReferenceStep& step, float w, float g, float* slots) {
                MoveMoments(g, slots);
                const float scale = Rounded(1 / (1 - std::pow(Number(kBeta1), step.t)));
                const float u = std::fma(
                    step.is_matrix ? kDecay : 0.0f, w,
                    (slots[0] * scale) / (std::sqrt(slots[1] * RootScale(step.t)) + kEpsilon));
                return std::fma(-Scaled(step, step.rate * step.ratio), u, w);
              },
          .in_double =
              [](const ReferenceStep& step, double w, double g, double* slots) {
                return w - step.rate * step.ratio * LambDirection(step, w, g, slots);
              },
          .update = LambDirection};
}

OptimizerReference Sgd() {
  return {.name = "Sgd",
          .field = "",
          .config = "",
          .slots = {},
          .first_slot_initial_value = 0,
          .in_float = [](const ReferenceStep& step, float w, float g,
                         float*) { return std::fma(-Scaled(step, step.rate), g, w); },
          .in_double = [](const ReferenceStep& step, double w, double g,
                          double*) { return w - step.rate * g; },
          .outer = true};
}

// The periods of these tests have three steps.
constexpr float kThird = 1.0f / 3.0f;
bool EndsPeriod(const ReferenceStep& step) { return std::fmod(step.t, 3.0) == 0; }

OptimizerReference DelayedNesterov() {
  return {.name = "DelayedNesterov",
          .field = "",
          .config = "momentum: 0.9 use_nesterov: true momentum_every: 3",
          .slots = {"DelayedNesterov", "DelayedNesterov_1"},
          .first_slot_initial_value = 0,
          .in_float =
              [](const ReferenceStep& step, float w, float g, float* slots) {
                const float part = g * kThird;
                slots[1] = slots[1] + part;
                if (!EndsPeriod(step)) return std::fma(-Scaled(step, step.rate), part, w);
                slots[0] = std::fma(slots[0], 0.9f, slots[1]);
                slots[1] = 0.0f;
                return std::fma(-Scaled(step, step.rate), std::fma(slots[0], 0.9f, part), w);
              },
          // The paper's form: every step applies its part, and the last one the momentum besides.
          .in_double =
              [](const ReferenceStep& step, double w, double g, double* slots) {
                w -= step.rate * g / 3;
                slots[1] += g / 3;
                if (!EndsPeriod(step)) return w;
                slots[0] = Number(0.9f) * slots[0] + slots[1];
                slots[1] = 0;
                return w - step.rate * Number(0.9f) * slots[0];
              },
          .outer = true};
}

}  // namespace

const std::vector<OptimizerReference>& OptimizerReferences() {
  static const auto* const references = new std::vector<OptimizerReference>{
      Momentum(), Nesterov(), RmsProp(), Adam(),           AdamW(),
      Adagrad(),  Lamb(),     Sgd(),     DelayedNesterov()};
  return *references;
}

const OptimizerReference& ReferenceNamed(const std::string& name) {
  for (const OptimizerReference& reference : OptimizerReferences()) {
    if (reference.name == name) return reference;
  }
  LOG(FATAL) << "no optimizer " << name;
}

}  // namespace pushpull
