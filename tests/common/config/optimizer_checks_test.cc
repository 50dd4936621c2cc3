#include "common/config/optimizer_checks.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/config_problem.h"
#include "common/config/field_checker.h"
#include "tests/testkit/optimizer_fields.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kConstantRate[] = "learning_rate { constant_learning_rate { learning_rate: 0.5 } }";

// Returns one line per problem.
std::string Lines(const FieldChecker& checker) {
  std::string lines;
  for (const ConfigProblem& problem : checker.problems()) {
    absl::StrAppend(&lines, ToString(problem), "\n");
  }
  return lines;
}

// Returns the problems of a train_config, or nothing if it is valid.
std::string Problems(const std::string& text) {
  config::TrainConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  FieldChecker checker;
  CheckOptimizer(config, &checker);
  return Lines(checker);
}

std::string RateProblems(const std::string& text) {
  config::LearningRate config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  FieldChecker checker;
  CheckLearningRate(config, "f.learning_rate", &checker);
  return Lines(checker);
}

void ExpectRateError(const std::string& text, const std::string& message) {
  EXPECT_THAT(RateProblems(text), HasSubstr(message)) << text;
}

TEST(OptimizerChecksTest, OptimizersThatExcludeClippingRefuseIt) {
  for (const auto* const field : OptimizerFields()) {
    const std::string rule = "optimizer { " + field->name() + " { " + kConstantRate + " } }";
    for (const std::string clipping :
         {"gradient_clipping_by_norm", "gradient_clipping_by_global_norm"}) {
      const std::string refusal =
          field->options().GetExtension(config::excludes_clipping)
              ? "train_config." + clipping + ": expected 0 (off) with " + field->name() + ", got 3"
              : "";
      EXPECT_THAT(Problems(rule + " " + clipping + ": 3"), StartsWith(refusal));
      EXPECT_EQ(Problems(rule + " " + clipping + ": 3").empty(), refusal.empty()) << rule;
    }
  }
}

TEST(OptimizerChecksTest, EveryNumberOfAnOptimizerHasARange) {
  for (const auto* const optimizer : OptimizerFields()) {
    const auto* const message = optimizer->message_type();
    for (int i = 0; i < message->field_count(); ++i) {
      const auto* const field = message->field(i);
      if (field->message_type() != nullptr || field->type() == field->TYPE_BOOL) continue;
      EXPECT_EQ(field->type(), field->TYPE_FLOAT) << field->full_name();
      EXPECT_NE(field->options().GetExtension(config::range), config::ANY) << field->full_name();
    }
  }
}

TEST(OptimizerChecksTest, ErrorsNameTheField) {
  EXPECT_THAT(Problems(""),
              HasSubstr("train_config.optimizer: expected one of rms_prop_optimizer, "));
  EXPECT_THAT(
      Problems("optimizer { adam_optimizer { } }"),
      HasSubstr(
          "train_config.optimizer.adam_optimizer.learning_rate: expected constant_learning_rate"));
  const auto with = [](const std::string& optimizer, const std::string& fields,
                       const std::string& rest = "") {
    return Problems("optimizer { " + optimizer + " { " + fields + " " + kConstantRate + " } } " +
                    rest);
  };
  EXPECT_THAT(with("momentum_optimizer", "momentum_optimizer_value: 1"),
              HasSubstr("momentum_optimizer.momentum_optimizer_value: expected a number from 0 to "
                        "below 1, got 1"));
  EXPECT_THAT(with("rms_prop_optimizer", "decay: -0.1"),
              HasSubstr("rms_prop_optimizer.decay: expected a number from 0 to below 1, got -0.1"));
  EXPECT_THAT(with("rms_prop_optimizer", "epsilon: 0"),
              HasSubstr("rms_prop_optimizer.epsilon: expected a number above 0, got 0"));
  EXPECT_THAT(with("adam_optimizer", "epsilon: nan"),
              HasSubstr("adam_optimizer.epsilon: expected a number above 0, got nan"));
  EXPECT_THAT(with("adamw_optimizer", "weight_decay: -1"),
              HasSubstr("adamw_optimizer.weight_decay: expected a number of at least 0, got -1"));
  EXPECT_THAT(with("adagrad_optimizer", "initial_accumulator_value: 0"),
              HasSubstr("initial_accumulator_value: expected a number above 0, got 0"));
  EXPECT_THAT(with("adam_optimizer", "", "gradient_clipping_by_norm: -1"),
              HasSubstr("train_config.gradient_clipping_by_norm: expected 0 (off) or a number from "
                        "1e-12 to 1e12, got -1"));
  EXPECT_THAT(with("adam_optimizer", "",
                   "gradient_clipping_by_norm: 1 gradient_clipping_by_global_norm: 2"),
              HasSubstr("expected one kind of clipping"));
  EXPECT_THAT(
      Problems(std::string("optimizer { moving_average_decay: 1 adam_optimizer { ") +
               kConstantRate + " } }"),
      HasSubstr("train_config.optimizer.moving_average_decay: expected a number from 0 to below 1, "
                "got 1"));
}

TEST(OptimizerChecksTest, LocalStepsAndTheirOuterOptimizer) {
  const auto problems = [](const std::string& text) {
    return Problems(std::string("optimizer { adam_optimizer { ") + kConstantRate + " } } " + text);
  };
  EXPECT_EQ(problems("local_steps: 1"), "");
  EXPECT_EQ(problems("local_steps: 64"), "");
  EXPECT_EQ(problems("local_steps: 64 outer_optimizer { }"), "");
  EXPECT_EQ(problems("local_steps: 64 outer_optimizer { learning_rate: 0.7 momentum: 0.9 "
                     "use_nesterov: true momentum_every: 8 }"),
            "");
  EXPECT_THAT(problems("local_steps: 0"),
              HasSubstr("train_config.local_steps: expected a number from 1 to 100000, got 0"));
  EXPECT_THAT(problems("local_steps: 100001"), HasSubstr("train_config.local_steps: expected"));
  for (const char* steps : {"", "local_steps: 1 "}) {
    EXPECT_THAT(problems(std::string(steps) + "outer_optimizer { momentum: 0.5 }"),
                HasSubstr("train_config.outer_optimizer: expected none, because local_steps is not "
                          "above 1, got one"));
  }
  const auto outer = [&](const std::string& fields) {
    return problems("local_steps: 8 outer_optimizer { " + fields + " }");
  };
  EXPECT_THAT(outer("learning_rate: 0"),
              HasSubstr("train_config.outer_optimizer.learning_rate: expected a number above 0"));
  EXPECT_THAT(outer("momentum: 1"), HasSubstr("outer_optimizer.momentum: expected a number from 0 "
                                              "to below 1, got 1"));
  EXPECT_THAT(
      outer("use_nesterov: true"),
      HasSubstr("outer_optimizer.momentum: expected above 0, because use_nesterov is true"));
  EXPECT_THAT(
      outer("momentum: 0.5 momentum_every: 2"),
      HasSubstr("outer_optimizer.momentum_every: expected 1, because use_nesterov is false, "
                "got 2"));
  EXPECT_THAT(outer("momentum: 0.5 use_nesterov: true momentum_every: 0"),
              HasSubstr("outer_optimizer.momentum_every: expected a number from 1"));
}

TEST(OptimizerChecksTest, AllProblemsAreListed) {
  const std::string problems = Problems(
      "optimizer { rms_prop_optimizer { decay: 2 epsilon: -1 "
      "learning_rate { constant_learning_rate { learning_rate: -3 } } } }");
  EXPECT_THAT(problems,
              HasSubstr("rms_prop_optimizer.decay: expected a number from 0 to below 1, got 2"));
  EXPECT_THAT(problems, HasSubstr("rms_prop_optimizer.epsilon: expected a number above 0, got -1"));
  EXPECT_THAT(
      problems,
      HasSubstr("constant_learning_rate.learning_rate: expected a number of at least 0, got -3"));
}

TEST(OptimizerChecksTest, ErrorsOfALearningRateNameTheField) {
  ExpectRateError("", "f.learning_rate: expected constant_learning_rate");
  ExpectRateError(
      "constant_learning_rate { learning_rate: -1 }",
      "f.learning_rate.constant_learning_rate.learning_rate: expected a number of at least "
      "0, got -1");
  ExpectRateError("constant_learning_rate { learning_rate: nan }",
                  "learning_rate: expected a number of at least 0, got nan");
  ExpectRateError(
      "exponential_decay_learning_rate { decay_steps: 0 }",
      "f.learning_rate.exponential_decay_learning_rate.decay_steps: expected at least 1, got 0");
  ExpectRateError("exponential_decay_learning_rate { decay_factor: 0 }",
                  "decay_factor: expected a number above 0, got 0");
  ExpectRateError("exponential_decay_learning_rate { min_learning_rate: inf }",
                  "min_learning_rate: expected a number of at least 0, got inf");
  ExpectRateError("manual_step_learning_rate { schedule { step: 0 } }",
                  "schedule[0].step: expected a step above 0, got 0");
  ExpectRateError("manual_step_learning_rate { schedule { step: 7 } schedule { step: 7 } }",
                  "schedule[1].step: expected a step above the one before it (7), got 7");
  ExpectRateError(
      "cosine_decay_learning_rate { learning_rate_base: 0.1 warmup_learning_rate: 0.2 }",
      "learning_rate_base: expected at least warmup_learning_rate (0.2), got 0.1");
  ExpectRateError(
      "cosine_decay_learning_rate { total_steps: 29 warmup_steps: 10 hold_base_rate_steps: 20 }",
      "total_steps: expected at least warmup_steps + hold_base_rate_steps (30), got 29");
}

TEST(OptimizerChecksTest, AllProblemsOfALearningRateAreListed) {
  const std::string problems =
      RateProblems("exponential_decay_learning_rate { decay_steps: 0 decay_factor: -1 }");
  EXPECT_THAT(problems, HasSubstr("decay_steps: expected at least 1, got 0"));
  EXPECT_THAT(problems, HasSubstr("decay_factor: expected a number above 0, got -1"));
}

}  // namespace
}  // namespace pushpull
