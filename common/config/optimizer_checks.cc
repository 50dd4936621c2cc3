#include "common/config/optimizer_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "common/config/schema_marks.h"

namespace pushpull {
namespace {

using google::protobuf::FieldDescriptor;

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

void CheckRange(config::Range range, const std::string& field, double value,
                FieldChecker* checker) {
  switch (range) {
    case config::ANY:
      break;
    case config::POSITIVE:
      checker->Positive(field, value);
      break;
    case config::NOT_NEGATIVE:
      checker->NotNegative(field, value);
      break;
    case config::FRACTION:
      checker->Fraction(field, value);
      break;
  }
}

// Checks the message of one optimizer: its numbers against the option (range) of their fields, and
// its learning rate.
void CheckRule(const google::protobuf::Message& rule, const std::string& path,
               FieldChecker* checker) {
  const google::protobuf::Reflection& reflection = *rule.GetReflection();
  const google::protobuf::Descriptor& descriptor = *rule.GetDescriptor();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor* const field = descriptor.field(i);
    const std::string name = absl::StrCat(path, ".", field->name());
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT) {
      CheckRange(field->options().GetExtension(config::range), name,
                 reflection.GetFloat(rule, field), checker);
    } else if (field->message_type() == config::LearningRate::descriptor()) {
      CheckLearningRate(*google::protobuf::DynamicCastToGenerated<config::LearningRate>(
                            &reflection.GetMessage(rule, field)),
                        name, checker);
    }
  }
}

// Refuses clipping together with an optimizer that excludes it.
void CheckNoClipping(const FieldDescriptor& kind, absl::string_view field, float norm,
                     FieldChecker* checker) {
  if (norm == 0 || !kind.options().GetExtension(config::excludes_clipping)) return;
  checker->Add(field, absl::StrCat("0 (off) with ", kind.name()), absl::StrCat(norm),
               "remove it: the optimizer scales the step by norms of its own");
}

// Accepts 0 (no clipping) and norms whose square is a normal double. The server computes with the
// square, in units of 2^-32.
void CheckNorm(absl::string_view field, float norm, FieldChecker* checker) {
  if (norm == 0 || (norm >= 1e-12f && norm <= 1e12f)) return;
  checker->Add(field, "0 (off) or a number from 1e-12 to 1e12", absl::StrCat(norm));
}

// A round is pushed as a whole, so a clone that dies loses up to this many mini-batches.
constexpr int64_t kMaxLocalSteps = 100'000;

void CheckOuterOptimizer(const config::OuterOptimizer& outer, FieldChecker* checker) {
  const std::string field = "train_config.outer_optimizer";
  CheckRule(outer, field, checker);
  checker->Between(field + ".momentum_every", outer.momentum_every(), 1, kMaxLocalSteps);
  if (outer.use_nesterov() && outer.momentum() == 0) {
    checker->Add(field + ".momentum", "above 0, because use_nesterov is true", "0",
                 "set momentum: 0.9, or remove use_nesterov");
  }
  if (outer.momentum_every() > 1 && !outer.use_nesterov()) {
    checker->Add(field + ".momentum_every", "1, because use_nesterov is false",
                 absl::StrCat(outer.momentum_every()),
                 "only Nesterov's momentum can be delayed: set use_nesterov: true, or remove it");
  }
}

void CheckLocalSteps(const config::TrainConfig& config, FieldChecker* checker) {
  checker->Between("train_config.local_steps", config.local_steps(), 1, kMaxLocalSteps);
  if (!config.has_outer_optimizer()) return;
  CheckOuterOptimizer(config.outer_optimizer(), checker);
  if (config.local_steps() > 1) return;
  checker->Add("train_config.outer_optimizer", "none, because local_steps is not above 1", "one",
               "set local_steps: 8, for example, or remove it");
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
  const auto* const kinds = config::Optimizer::descriptor()->FindOneofByName("optimizer");
  const auto* const kind = optimizer.GetReflection()->GetOneofFieldDescriptor(optimizer, kinds);
  if (kind == nullptr) {
    checker->Missing(field, SupportedFields(*kinds));
  } else {
    CheckRule(optimizer.GetReflection()->GetMessage(optimizer, kind),
              absl::StrCat(field, ".", kind->name()), checker);
    CheckNoClipping(*kind, "train_config.gradient_clipping_by_norm",
                    config.gradient_clipping_by_norm(), checker);
    CheckNoClipping(*kind, "train_config.gradient_clipping_by_global_norm",
                    config.gradient_clipping_by_global_norm(), checker);
  }
  CheckLocalSteps(config, checker);
  if (optimizer.use_moving_average()) {
    checker->Fraction(field + ".moving_average_decay", optimizer.moving_average_decay());
  } else if (optimizer.moving_average_warmup()) {
    checker->Add(field + ".moving_average_warmup", "false, because use_moving_average is false",
                 "true", "set use_moving_average: true, or remove it");
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
