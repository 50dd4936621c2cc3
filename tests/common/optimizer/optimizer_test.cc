#include "common/optimizer/optimizer.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"

#include "tests/common/optimizer/optimizer_test_util.h"
#include "tests/testkit/optimizer_fields.h"

namespace pushpull {
namespace {

constexpr char kRate[] = "learning_rate { constant_learning_rate { learning_rate: 0.5 } }";

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

TEST(OptimizerTest, TheDecayOfTheMovingAverageBeginsLowWithWarmup) {
  const std::string rule = std::string("momentum_optimizer { ") + kRate + " }";
  const OptimizerSpec constant =
      MakeOptimizer("optimizer { moving_average_decay: 0.75 " + rule + " }");
  EXPECT_EQ(constant.EmaDecayAt(1), 0.75);
  const OptimizerSpec warmup = MakeOptimizer(
      "optimizer { moving_average_decay: 0.75 moving_average_warmup: true " + rule + " }");
  EXPECT_DOUBLE_EQ(warmup.EmaDecayAt(1), 2.0 / 11.0);
  EXPECT_DOUBLE_EQ(warmup.EmaDecayAt(2), 0.25);
  EXPECT_DOUBLE_EQ(warmup.EmaDecayAt(25), 26.0 / 35.0);
  EXPECT_EQ(warmup.EmaDecayAt(26), 0.75);
  EXPECT_EQ(warmup.EmaDecayAt(uint64_t{1} << 62), 0.75);
}

TEST(OptimizerTest, EveryOptimizerOfTheConfigHasAReference) {
  for (const auto* const field : OptimizerFields()) {
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
TEST(OptimizerTest, OnlyRulesThatNeedNormsExcludeClipping) {
  for (const auto* const field : OptimizerFields()) {
    const std::string rule = "optimizer { " + field->name() + " { " + kRate + " } }";
    EXPECT_EQ(field->options().GetExtension(config::excludes_clipping),
              MakeOptimizer(rule).rule->needs_norms())
        << rule;
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

}  // namespace
}  // namespace pushpull
