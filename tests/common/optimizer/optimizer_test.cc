#include "common/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "tests/testkit/optimizer_fields.h"
#include "tests/testkit/optimizer_test_util.h"

namespace pushpull {
namespace {

constexpr char kHalfRate[] = "learning_rate { constant_learning_rate { learning_rate: 0.5 } }";

TEST(OptimizerTest, ReadsTheSettingsThatAllRulesShare) {
  const OptimizerSpec rms =
      MakeOptimizer(std::string("optimizer { rms_prop_optimizer { ") + kHalfRate + " } }");
  EXPECT_EQ(rms.learning_rate.At(0), 0.5f);
  EXPECT_TRUE(rms.has_ema);
  EXPECT_FLOAT_EQ(rms.ema_decay, 0.9999f);
  EXPECT_EQ(rms.clipping, ClippingKind::kNone);
  EXPECT_FALSE(rms.measures_norms());

  const OptimizerSpec adam = MakeOptimizer(
      std::string("gradient_clipping_by_norm: 10 optimizer { use_moving_average: false "
                  "adam_optimizer { ") +
      kHalfRate + " } }");
  EXPECT_FALSE(adam.has_ema);
  EXPECT_EQ(adam.clipping, ClippingKind::kPerTensor);
  EXPECT_EQ(adam.clip_norm, 10.0);
  EXPECT_TRUE(adam.measures_norms());

  const OptimizerSpec momentum = MakeOptimizer(
      std::string("gradient_clipping_by_global_norm: 2 optimizer { momentum_optimizer { ") +
      kHalfRate + " } }");
  EXPECT_EQ(momentum.clipping, ClippingKind::kGlobal);
}

TEST(OptimizerTest, TheDecayOfTheMovingAverageBeginsLowWithWarmup) {
  const std::string rule = std::string("momentum_optimizer { ") + kHalfRate + " }";
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

// A run that is resumed with another rule would read the slots of the first one as its own.
TEST(OptimizerTest, NoTwoRulesShareTheNameOfASlot) {
  std::vector<OptimizerSpec> optimizers;
  for (const auto* const field : OptimizerFields()) {
    optimizers.push_back(
        MakeOptimizer("optimizer { " + field->name() + " { " + kHalfRate + " } }"));
  }
  for (const char* const outer :
       {"momentum: 0.5", "momentum: 0.5 use_nesterov: true momentum_every: 2"}) {
    optimizers.push_back(
        MakeOptimizer(absl::StrCat("local_steps: 2 optimizer { adam_optimizer { ", kHalfRate,
                                   " } } outer_optimizer { learning_rate: 1 ", outer, " }")));
  }
  std::set<std::string> names;
  for (const OptimizerSpec& optimizer : optimizers) {
    for (int slot = 0; slot < optimizer.num_slots(); ++slot) {
      EXPECT_TRUE(names.insert(std::string(optimizer.slot_name(slot))).second)
          << optimizer.slot_name(slot);
    }
  }
  EXPECT_GE(names.size(), 10u);
}

// Validation of the config and Rule::needs_norms must agree.
TEST(OptimizerTest, OnlyRulesThatNeedNormsExcludeClipping) {
  for (const auto* const field : OptimizerFields()) {
    const std::string rule = "optimizer { " + field->name() + " { " + kHalfRate + " } }";
    EXPECT_EQ(field->options().GetExtension(config::excludes_clipping),
              MakeOptimizer(rule).rule->needs_norms())
        << rule;
  }
}

TEST(OptimizerTest, LocalStepsDivideTheSettingsBetweenClonesAndServer) {
  config::TrainConfig config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      std::string("gradient_clipping_by_norm: 3 local_steps: 8 optimizer { "
                  "moving_average_decay: 0.5 adam_optimizer { ") +
          kHalfRate + " } } outer_optimizer { learning_rate: 0.75 momentum: 0.5 }",
      &config));
  EXPECT_TRUE(HasLocalSteps(config));
  const OptimizerSpec server(config);
  EXPECT_EQ(server.slot_name(0), "OuterMomentum");
  EXPECT_EQ(server.learning_rate.At(7), 0.75f);
  EXPECT_TRUE(server.has_ema);
  EXPECT_FALSE(server.measures_norms());
  const OptimizerSpec clones = OptimizerSpec::OfLocalSteps(config);
  EXPECT_EQ(clones.slot_name(0), "Adam");
  EXPECT_EQ(clones.learning_rate.At(7), 0.5f);
  EXPECT_FALSE(clones.has_ema);
  EXPECT_EQ(clones.clip_norm, 3.0);

  config.set_local_steps(1);
  EXPECT_FALSE(HasLocalSteps(config));
  EXPECT_EQ(OptimizerSpec(config).slot_name(0), "Adam");
}

TEST(OptimizerTest, TheOuterOptimizerChoosesItsRule) {
  const auto slots = [](const std::string& outer) {
    const OptimizerSpec spec = MakeOptimizer(
        std::string("local_steps: 2 optimizer { adam_optimizer { ") + kHalfRate + " } } " + outer);
    std::string names;
    for (const SlotSpec& slot : spec.rule->slots()) names += std::string(slot.name) + " ";
    return names;
  };
  EXPECT_EQ(slots(""), "");
  EXPECT_EQ(slots("outer_optimizer { learning_rate: 0.5 }"), "");
  EXPECT_EQ(slots("outer_optimizer { momentum: 0.9 }"), "OuterMomentum ");
  EXPECT_EQ(slots("outer_optimizer { momentum: 0.9 use_nesterov: true }"), "OuterMomentum ");
  EXPECT_EQ(slots("outer_optimizer { momentum: 0.9 use_nesterov: true momentum_every: 2 }"),
            "DelayedNesterov DelayedNesterov_1 ");
}

TEST(OptimizerTest, RoundsAreAppliedWithoutWhatClonesHaveApplied) {
  const VariableLayout layout = MakeLayout();
  const VariableLayout differences = LayoutOfLocalSteps(layout, 3);
  EXPECT_EQ(differences.signature(), layout.signature());
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& variable = differences.variables()[i];
    EXPECT_EQ(variable.l2_weight, 0.0f) << variable.name;
    EXPECT_EQ(variable.gradient_multiplier, 1.0f) << variable.name;
    EXPECT_EQ(variable.learning_rate_multiplier, 1.0f) << variable.name;
    EXPECT_FLOAT_EQ(variable.moving_average_decay,
                    std::pow(layout.variables()[i].moving_average_decay, 3.0f))
        << variable.name;
    EXPECT_EQ(variable.frozen, layout.variables()[i].frozen) << variable.name;
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
