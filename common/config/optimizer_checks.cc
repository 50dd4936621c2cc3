// Tested by tests/common/config/validate_config_test.cc.
// Tested by tests/ps_server/store/optimizer_test.cc.
#include "common/config/optimizer_checks.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

void CheckExponentialDecay(const config::ExponentialDecayLearningRate& rate,
                           const std::string& field, FieldChecker* checker) {
  checker->NotNegative(absl::StrCat(field, ".initial_learning_rate"), rate.initial_learning_rate());
  checker->AtLeast(absl::StrCat(field, ".decay_steps"), rate.decay_steps(), 1);
  checker->Positive(absl::StrCat(field, ".decay_factor"), rate.decay_factor());
  checker->NotNegative(absl::StrCat(field, ".burnin_learning_rate"), rate.burnin_learning_rate());
  checker->NotNegative(absl::StrCat(field, ".min_learning_rate"), rate.min_learning_rate());
}

void CheckManualStep(const config::ManualStepLearningRate& rate, const std::string& field,
                     FieldChecker* checker) {
  checker->NotNegative(absl::StrCat(field, ".initial_learning_rate"), rate.initial_learning_rate());
  if (rate.warmup() && rate.schedule().empty()) {
    checker->Missing(absl::StrCat(field, ".schedule"), "a first entry for the warm-up to end at");
  }
  int64_t previous = 0;
  for (int i = 0; i < rate.schedule_size(); ++i) {
    const std::string entry = absl::StrCat(field, ".schedule[", i, "]");
    const int64_t step = rate.schedule(i).step();
    if (step <= previous) {
      checker->Add(absl::StrCat(entry, ".step"),
                   i == 0 ? "a step above 0"
                          : absl::StrCat("a step above the one before it (", previous, ")"),
                   absl::StrCat(step), "steps of a schedule have to increase");
    }
    previous = step;
    checker->NotNegative(absl::StrCat(entry, ".learning_rate"), rate.schedule(i).learning_rate());
  }
}

void CheckCosineDecay(const config::CosineDecayLearningRate& rate, const std::string& field,
                      FieldChecker* checker) {
  checker->NotNegative(absl::StrCat(field, ".learning_rate_base"), rate.learning_rate_base());
  checker->NotNegative(absl::StrCat(field, ".warmup_learning_rate"), rate.warmup_learning_rate());
  if (rate.warmup_steps() > 0 && rate.learning_rate_base() < rate.warmup_learning_rate()) {
    checker->Add(
        absl::StrCat(field, ".learning_rate_base"),
        absl::StrCat("at least warmup_learning_rate (", rate.warmup_learning_rate(), ")"),
        absl::StrCat(rate.learning_rate_base()),
        "lower warmup_learning_rate (default 0.0002), or set warmup_steps: 0 for no warm-up");
  }
  const int64_t before_decay = int64_t{rate.warmup_steps()} + rate.hold_base_rate_steps();
  if (rate.total_steps() < before_decay) {
    checker->Add(absl::StrCat(field, ".total_steps"),
                 absl::StrCat("at least warmup_steps + hold_base_rate_steps (", before_decay, ")"),
                 absl::StrCat(rate.total_steps()), "warmup_steps is 10000 unless it is written");
  }
}

// Accepts 0 (no clipping) and norms whose square is a normal double. The server computes with the
// square, in units of 2^-32.
void CheckNorm(absl::string_view field, float norm, FieldChecker* checker) {
  if (norm == 0 || (norm >= 1e-12f && norm <= 1e12f)) return;
  checker->Add(field, "0 (off) or a number from 1e-12 to 1e12", absl::StrCat(norm));
}

}  // namespace

void CheckLearningRate(const config::LearningRate& rate, absl::string_view field,
                       FieldChecker* checker) {
  switch (rate.learning_rate_case()) {
    case config::LearningRate::kConstantLearningRate:
      checker->NotNegative(absl::StrCat(field, ".constant_learning_rate.learning_rate"),
                           rate.constant_learning_rate().learning_rate());
      break;
    case config::LearningRate::kExponentialDecayLearningRate:
      CheckExponentialDecay(rate.exponential_decay_learning_rate(),
                            absl::StrCat(field, ".exponential_decay_learning_rate"), checker);
      break;
    case config::LearningRate::kManualStepLearningRate:
      CheckManualStep(rate.manual_step_learning_rate(),
                      absl::StrCat(field, ".manual_step_learning_rate"), checker);
      break;
    case config::LearningRate::kCosineDecayLearningRate:
      CheckCosineDecay(rate.cosine_decay_learning_rate(),
                       absl::StrCat(field, ".cosine_decay_learning_rate"), checker);
      break;
    case config::LearningRate::LEARNING_RATE_NOT_SET:
      checker->Missing(
          field,
          "constant_learning_rate, exponential_decay_learning_rate, manual_step_learning_rate or "
          "cosine_decay_learning_rate");
      break;
  }
}

void CheckOptimizer(const config::TrainConfig& config, FieldChecker* checker) {
  const config::Optimizer& optimizer = config.optimizer();
  const std::string field = "train_config.optimizer";
  switch (optimizer.optimizer_case()) {
    case config::Optimizer::kRmsPropOptimizer: {
      const auto& rms = optimizer.rms_prop_optimizer();
      const std::string path = field + ".rms_prop_optimizer";
      checker->Fraction(path + ".momentum_optimizer_value", rms.momentum_optimizer_value());
      checker->Fraction(path + ".decay", rms.decay());
      checker->Positive(path + ".epsilon", rms.epsilon());
      CheckLearningRate(rms.learning_rate(), path + ".learning_rate", checker);
      break;
    }
    case config::Optimizer::kMomentumOptimizer: {
      const auto& momentum = optimizer.momentum_optimizer();
      const std::string path = field + ".momentum_optimizer";
      checker->Fraction(path + ".momentum_optimizer_value", momentum.momentum_optimizer_value());
      CheckLearningRate(momentum.learning_rate(), path + ".learning_rate", checker);
      break;
    }
    case config::Optimizer::kAdamOptimizer: {
      const auto& adam = optimizer.adam_optimizer();
      const std::string path = field + ".adam_optimizer";
      checker->Positive(path + ".epsilon", adam.epsilon());
      CheckLearningRate(adam.learning_rate(), path + ".learning_rate", checker);
      break;
    }
    case config::Optimizer::OPTIMIZER_NOT_SET:
      checker->Missing(field, "rms_prop_optimizer, momentum_optimizer or adam_optimizer");
      break;
  }
  if (optimizer.use_moving_average()) {
    checker->Fraction(field + ".moving_average_decay", optimizer.moving_average_decay());
  }
  CheckNorm("train_config.gradient_clipping_by_norm", config.gradient_clipping_by_norm(), checker);
  CheckNorm("train_config.gradient_clipping_by_global_norm",
            config.gradient_clipping_by_global_norm(), checker);
  if (config.gradient_clipping_by_norm() > 0 && config.gradient_clipping_by_global_norm() > 0) {
    checker->Add("train_config.gradient_clipping_by_global_norm", "one kind of clipping",
                 absl::StrCat(config.gradient_clipping_by_global_norm(),
                              " together with gradient_clipping_by_norm ",
                              config.gradient_clipping_by_norm()),
                 "remove one of the two");
  }
}

}  // namespace pushpull
