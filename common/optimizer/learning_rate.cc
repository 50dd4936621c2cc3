#include "common/optimizer/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace pushpull {
namespace {

double At(const config::ExponentialDecayLearningRate& c, uint64_t step) {
  double rate = 0.0;
  if (step < c.burnin_steps()) {
    rate = c.burnin_learning_rate() == 0 ? c.initial_learning_rate() : c.burnin_learning_rate();
  } else {
    double exponent = static_cast<double>(step - c.burnin_steps()) / c.decay_steps();
    if (c.staircase()) exponent = std::floor(exponent);
    rate = c.initial_learning_rate() * std::pow(static_cast<double>(c.decay_factor()), exponent);
  }
  return std::max<double>(rate, c.min_learning_rate());
}

double At(const config::ManualStepLearningRate& c, uint64_t step) {
  double rate = c.initial_learning_rate();
  if (c.warmup() && c.schedule_size() > 0 && step < c.schedule(0).step()) {
    return rate + (c.schedule(0).learning_rate() - rate) / c.schedule(0).step() * step;
  }
  for (const auto& entry : c.schedule()) {
    if (step >= entry.step()) rate = entry.learning_rate();
  }
  return rate;
}

double At(const config::CosineDecayLearningRate& c, uint64_t step) {
  const double base = c.learning_rate_base();
  const double warmup = c.warmup_learning_rate();
  if (step > c.total_steps()) return 0.0;
  if (step < c.warmup_steps()) return warmup + (base - warmup) * step / c.warmup_steps();
  const uint64_t start = uint64_t{c.warmup_steps()} + c.hold_base_rate_steps();
  if (step <= start) return base;
  return base / 2 * (1 + std::cos(std::numbers::pi * (step - start) / (c.total_steps() - start)));
}

}  // namespace

float LearningRateSchedule::At(uint64_t step) const {
  switch (config_.learning_rate_case()) {
    case config::LearningRate::kExponentialDecayLearningRate:
      return static_cast<float>(pushpull::At(config_.exponential_decay_learning_rate(), step));
    case config::LearningRate::kManualStepLearningRate:
      return static_cast<float>(pushpull::At(config_.manual_step_learning_rate(), step));
    case config::LearningRate::kCosineDecayLearningRate:
      return static_cast<float>(pushpull::At(config_.cosine_decay_learning_rate(), step));
    default:
      return config_.constant_learning_rate().learning_rate();
  }
}

}  // namespace pushpull
