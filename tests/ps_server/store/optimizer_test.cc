#include "ps_server/store/optimizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "tests/ps_server/store/store_test_util.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr char kRate[] = "learning_rate { constant_learning_rate { learning_rate: 0.5 } }";

std::string Error(const std::string& text) {
  config::TrainConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  const absl::Status status = OptimizerSpec::Create(config).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
  return std::string(status.message());
}

// Returns the fields of the oneof in config::Optimizer.
std::vector<const google::protobuf::FieldDescriptor*> AllOptimizers() {
  const auto* const kinds = config::Optimizer::descriptor()->FindOneofByName("optimizer");
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  for (int i = 0; i < kinds->field_count(); ++i) fields.push_back(kinds->field(i));
  return fields;
}

TEST(OptimizerTest, ReadsTheSettingsThatAllRulesShare) {
  const OptimizerSpec rms =
      MakeOptimizer(std::string("optimizer { rms_prop_optimizer { ") + kRate + " } }");
  EXPECT_EQ(rms.learning_rate.At(0), 0.5f);
  EXPECT_TRUE(rms.has_ema);
  EXPECT_FLOAT_EQ(rms.ema_decay, 0.9999f);
  EXPECT_EQ(rms.clipping, ClippingKind::kNone);
  EXPECT_FALSE(rms.measures_norms());

  const OptimizerSpec adam = MakeOptimizer(
      std::string("gradient_clipping_by_norm: 10 optimizer { use_moving_average: false "
                  "adam_optimizer { ") +
      kRate + " } }");
  EXPECT_FALSE(adam.has_ema);
  EXPECT_EQ(adam.clipping, ClippingKind::kPerTensor);
  EXPECT_EQ(adam.clip_norm, 10.0);
  EXPECT_TRUE(adam.measures_norms());

  const OptimizerSpec momentum = MakeOptimizer(
      std::string("gradient_clipping_by_global_norm: 2 optimizer { momentum_optimizer { ") + kRate +
      " } }");
  EXPECT_EQ(momentum.clipping, ClippingKind::kGlobal);
}

TEST(OptimizerTest, EveryOptimizerOfTheConfigHasAReference) {
  for (const auto* const field : AllOptimizers()) {
    const auto& references = OptimizerReferences();
    EXPECT_TRUE(std::any_of(references.begin(), references.end(), [&](const auto& reference) {
      return reference.field == field->name();
    })) << field->name();
  }
}

TEST(OptimizerTest, SlotsHaveTheNamesAndInitialValuesOfTheReference) {
  for (const OptimizerReference& reference : OptimizerReferences()) {
    const OptimizerSpec optimizer = MakeOptimizer(reference);
    ASSERT_EQ(optimizer.num_slots(), reference.slots.size()) << reference.name;
    for (int slot = 0; slot < optimizer.num_slots(); ++slot) {
      EXPECT_EQ(optimizer.slot_name(slot), reference.slots[slot]) << reference.name;
      EXPECT_EQ(optimizer.rule->slots()[slot].initial_value,
                slot == 0 ? reference.first_slot_initial_value : 0.0f)
          << reference.name;
    }
    EXPECT_EQ(optimizer.rule->needs_norms(), reference.update != nullptr) << reference.name;
  }
}

TEST(OptimizerTest, DefaultsMatchTensorFlowAndPyTorch) {
  EXPECT_EQ(config::RMSPropOptimizer().momentum_optimizer_value(), 0.9f);
  EXPECT_EQ(config::RMSPropOptimizer().epsilon(), 1.0f);
  EXPECT_EQ(config::AdamOptimizer().epsilon(), 1e-8f);
  EXPECT_FALSE(config::MomentumOptimizer().use_nesterov());
  EXPECT_EQ(config::AdagradOptimizer().initial_accumulator_value(), 0.1f);
  EXPECT_EQ(config::AdamWOptimizer().beta1(), 0.9f);
  EXPECT_EQ(config::AdamWOptimizer().beta2(), 0.999f);
  EXPECT_EQ(config::AdamWOptimizer().epsilon(), 1e-8f);
  EXPECT_EQ(config::AdamWOptimizer().weight_decay(), 0.01f);
}

// Validation of the config and Rule::needs_norms must agree.
TEST(OptimizerTest, OnlyRulesThatNeedNormsRefuseClipping) {
  for (const auto* const field : AllOptimizers()) {
    const std::string rule = "optimizer { " + field->name() + " { " + kRate + " } }";
    const bool needs_norms = MakeOptimizer(rule).rule->needs_norms();
    for (const std::string clipping :
         {"gradient_clipping_by_norm", "gradient_clipping_by_global_norm"}) {
      if (needs_norms) {
        EXPECT_THAT(Error(rule + " " + clipping + ": 3"),
                    HasSubstr("train_config." + clipping + ": expected 0 (off) with " +
                              field->name() + ", got 3"));
      } else {
        EXPECT_TRUE(MakeOptimizer(rule + " " + clipping + ": 3").measures_norms());
      }
    }
  }
}

TEST(OptimizerTest, EveryNumberOfAnOptimizerHasARange) {
  for (const auto* const optimizer : AllOptimizers()) {
    const auto* const message = optimizer->message_type();
    for (int i = 0; i < message->field_count(); ++i) {
      const auto* const field = message->field(i);
      if (field->message_type() != nullptr || field->type() == field->TYPE_BOOL) continue;
      EXPECT_EQ(field->type(), field->TYPE_FLOAT) << field->full_name();
      EXPECT_NE(field->options().GetExtension(config::range), config::ANY) << field->full_name();
    }
  }
}

TEST(OptimizerTest, UpdatesTrainableVariablesThatAreNotFrozen) {
  VariableSpec variable;
  EXPECT_TRUE(OptimizerSpec::Updates(variable));
  variable.frozen = true;
  EXPECT_FALSE(OptimizerSpec::Updates(variable));
  variable.frozen = false;
  variable.kind = VariableKind::kMovingStatistic;
  EXPECT_FALSE(OptimizerSpec::Updates(variable));
}

TEST(OptimizerTest, ErrorsNameTheField) {
  EXPECT_THAT(Error(""), HasSubstr("train_config.optimizer: expected one of rms_prop_optimizer, "));
  EXPECT_THAT(
      Error("optimizer { adam_optimizer { } }"),
      HasSubstr(
          "train_config.optimizer.adam_optimizer.learning_rate: expected constant_learning_rate"));
  const auto with = [](const std::string& optimizer, const std::string& fields,
                       const std::string& rest = "") {
    return Error("optimizer { " + optimizer + " { " + fields + " " + kRate + " } } " + rest);
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
      Error(std::string("optimizer { moving_average_decay: 1 adam_optimizer { ") + kRate + " } }"),
      HasSubstr("train_config.optimizer.moving_average_decay: expected a number from 0 to below 1, "
                "got 1"));
}

TEST(OptimizerTest, AllProblemsAreListed) {
  const std::string error = Error(
      "optimizer { rms_prop_optimizer { decay: 2 epsilon: -1 "
      "learning_rate { constant_learning_rate { learning_rate: -3 } } } }");
  EXPECT_THAT(error,
              HasSubstr("rms_prop_optimizer.decay: expected a number from 0 to below 1, got 2"));
  EXPECT_THAT(error, HasSubstr("rms_prop_optimizer.epsilon: expected a number above 0, got -1"));
  EXPECT_THAT(
      error,
      HasSubstr("constant_learning_rate.learning_rate: expected a number of at least 0, got -3"));
}

}  // namespace
}  // namespace pushpull
