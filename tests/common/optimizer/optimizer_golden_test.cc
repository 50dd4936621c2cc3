// Compares five steps of one weight, a 1 x 1 matrix, with the values that
// tests/reference/optimizer_golden.py computes.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/testkit/optimizer_test_util.h"

namespace pushpull {
namespace {

constexpr float kGradients[] = {0.5f, -0.25f, 0.125f, 2.0f, -1.0f};

struct Golden {
  double weight, first_slot, second_slot, ema;
};

// `rest`: fields of train_config besides the optimizer. `shape`: of the weight, with one element.
void ExpectGolden(const std::string& optimizer_text, const std::vector<Golden>& golden,
                  const std::string& rest = "", const std::vector<int64_t>& shape = {1, 1}) {
  const OptimizerSpec optimizer =
      MakeOptimizer("optimizer { moving_average_decay: 0.75 " + optimizer_text + " } " + rest);
  const VariableLayout layout = *VariableLayout::Create({MakeVariable("w", shape)});
  const Sharding sharding(layout.total_elements(), 1);
  ThreadPool pool(1);
  const ApplyPass pass(&layout, sharding, 0, optimizer, &pool);
  OwnedState from = InitialState(layout, optimizer, 1);
  from.vectors().weights[0] = 1.5f;
  from.vectors().ema[0] = 1.5f;
  for (size_t t = 0; t < golden.size(); ++t) {
    FullGradient gradient{0, 1, std::vector<float>(layout.total_elements())};
    gradient.values[0] = kGradients[t];
    const OwnedState to(layout.total_elements(), optimizer);
    const auto contributions = CutContributions({gradient}, sharding, 0, 0);
    std::vector<double> norms;
    if (optimizer.measures_norms()) {
      norms = pass.MeasureNorms(t + 1, contributions, from.view()).value();
    }
    ASSERT_TRUE(pass.Run(t + 1, contributions, norms, from.view(), to.vectors()).ok());
    const StateVectors& v = to.vectors();
    EXPECT_NEAR(v.weights[0], golden[t].weight, 1e-6) << "step " << t + 1;
    if (v.slots[0] != nullptr) {
      EXPECT_NEAR(v.slots[0][0], golden[t].first_slot, 1e-6) << "step " << t + 1;
    }
    if (v.slots[1] != nullptr) {
      EXPECT_NEAR(v.slots[1][0], golden[t].second_slot, 1e-7) << "step " << t + 1;
    }
    EXPECT_NEAR(v.ema[0], golden[t].ema, 1e-6) << "step " << t + 1;
    from = to;
  }
}

TEST(OptimizerGoldenTest, Momentum) {
  ExpectGolden(
      "momentum_optimizer { momentum_optimizer_value: 0.9 "
      "learning_rate { constant_learning_rate { learning_rate: 0.1 } } }",
      {{1.45, 0.5, 0, 1.4875},
       {1.43, 0.2, 0, 1.473125},
       {1.3995, 0.305, 0, 1.45471875},
       {1.17205, 2.2745, 0, 1.3840515625},
       {1.067345, 1.04705, 0, 1.30487492188}});
}

TEST(OptimizerGoldenTest, MovingAverageWithWarmup) {
  ExpectGolden(
      "moving_average_warmup: true momentum_optimizer { momentum_optimizer_value: 0.9 "
      "learning_rate { constant_learning_rate { learning_rate: 0.1 } } }",
      {{1.45, 0.5, 0, 1.45909090909},
       {1.43, 0.2, 0, 1.43727272727},
       {1.3995, 0.305, 0, 1.41112237762},
       {1.17205, 2.2745, 0, 1.25743299201},
       {1.067345, 1.04705, 0, 1.1433801968}});
}

TEST(OptimizerGoldenTest, RmsProp) {
  ExpectGolden(
      "rms_prop_optimizer { decay: 0.9 momentum_optimizer_value: 0.8 epsilon: 0.01 "
      "learning_rate { constant_learning_rate { learning_rate: 0.1 } } }",
      {{1.448291231, 0.925, 0.0517087689995, 1.48707280775},
       {1.43406048351, 0.83875, 0.0142307474931, 1.47381972669},
       {1.40839774537, 0.7564375, 0.0256627381332, 1.45746423136},
       {1.19637200972, 1.08079375, 0.212025735658, 1.39219117595},
       {1.12285577182, 1.072714375, 0.0735162378949, 1.32485732492}});
}

TEST(OptimizerGoldenTest, Adam) {
  ExpectGolden(
      "adam_optimizer { epsilon: 0.1 "
      "learning_rate { constant_learning_rate { learning_rate: 0.01 } } }",
      {{1.49863472941, 0.05, 0.00025, 1.49965868235},
       {1.49823477099, 0.02, 0.00031225, 1.49930270451},
       {1.49771306131, 0.0305, 0.00032756275, 1.49890529371},
       {1.49519177967, 0.22745, 0.00432723518725, 1.4979769152},
       {1.49414751086, 0.104705, 0.00532290795206, 1.49701956412}});
}

TEST(OptimizerGoldenTest, Nesterov) {
  ExpectGolden(
      "momentum_optimizer { momentum_optimizer_value: 0.875 use_nesterov: true "
      "learning_rate { constant_learning_rate { learning_rate: 0.1 } } }",
      {{1.40625, 0.5, 0, 1.4765625},
       {1.41484375, 0.1875, 0, 1.4611328125},
       {1.37705078125, 0.2890625, 0, 1.44011230469},
       {0.979919433594, 2.2529296875, 0, 1.32506408691},
       {0.994929504395, 0.971313476562, 0, 1.24253044128}});
}

constexpr char kAnyOptimizer[] =
    "momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 9 } } }";

TEST(OptimizerGoldenTest, OuterOptimizerWithoutMomentum) {
  ExpectGolden(kAnyOptimizer,
               {{1.15, 0, 0, 1.4125},
                {1.325, 0, 0, 1.390625},
                {1.2375, 0, 0, 1.35234375},
                {-0.1625, 0, 0, 0.9736328125},
                {0.5375, 0, 0, 0.864599609375}},
               "local_steps: 2 outer_optimizer { learning_rate: 0.7 }");
}

// The numbers are those of Nesterov.
TEST(OptimizerGoldenTest, OuterNesterov) {
  ExpectGolden(
      kAnyOptimizer,
      {{1.40625, 0.5, 0, 1.4765625},
       {1.41484375, 0.1875, 0, 1.4611328125},
       {1.37705078125, 0.2890625, 0, 1.44011230469},
       {0.979919433594, 2.2529296875, 0, 1.32506408691},
       {0.994929504395, 0.971313476562, 0, 1.24253044128}},
      "local_steps: 2 outer_optimizer { learning_rate: 0.1 momentum: 0.875 use_nesterov: true }");
}

TEST(OptimizerGoldenTest, DelayedNesterov) {
  ExpectGolden(kAnyOptimizer,
               {{1.325, 0, 0.25, 1.45625},
                {1.3359375, 0.125, 0, 1.426171875},
                {1.2921875, 0.125, 0.0625, 1.39267578125},
                {-0.1255859375, 1.171875, 0, 1.01311035156},
                {0.2244140625, 1.171875, -0.5, 0.815936279297}},
               "local_steps: 2 outer_optimizer { learning_rate: 0.7 momentum: 0.875 "
               "use_nesterov: true momentum_every: 2 }");
}

TEST(OptimizerGoldenTest, Adagrad) {
  ExpectGolden(
      "adagrad_optimizer { initial_accumulator_value: 0.125 "
      "learning_rate { constant_learning_rate { learning_rate: 0.1 } } }",
      {{1.41835034191, 0.375, 0, 1.47958758548},
       {1.45614678921, 0.4375, 0, 1.47372738641},
       {1.43757725539, 0.453125, 0, 1.46468985365},
       {1.34280143495, 4.453125, 0, 1.43421774898},
       {1.38562445315, 5.453125, 0, 1.42206942502}});
}

// The numbers of AdamW and LAMB. Without a field that says so, both treat a vector differently from
// a matrix: it has no weight decay, and LAMB scales its step by no ratio.
constexpr char kNumbers[] =
    "beta1: 0.75 beta2: 0.875 epsilon: 0.125 weight_decay: 0.25 "
    "learning_rate { constant_learning_rate { learning_rate: 0.1 } }";

const std::vector<Golden> kAdamWGolden = {
    {1.3825, 0.125, 0.03125, 1.470625},
    {1.33399473138, 0.03125, 0.03515625, 1.43646743285},
    {1.27913735468, 0.0546875, 0.03271484375, 1.39713491331},
    {1.18410874443, 0.541015625, 0.528625488281, 1.34387837109},
    {1.13781124008, 0.15576171875, 0.587547302246, 1.29236158833}};

TEST(OptimizerGoldenTest, AdamW) {
  ExpectGolden(absl::StrCat("adamw_optimizer { ", kNumbers, " }"), kAdamWGolden);
}

TEST(OptimizerGoldenTest, AdamWDecaysVectorsIfTheConfigSaysSo) {
  ExpectGolden(absl::StrCat("adamw_optimizer { decay_all_variables: true ", kNumbers, " }"),
               kAdamWGolden, "", {1});
}

const std::vector<Golden> kLambGolden = {{1.35, 0.125, 0.03125, 1.4625},
                                         {1.215, 0.03125, 0.03515625, 1.400625},
                                         {1.0935, 0.0546875, 0.03271484375, 1.32384375},
                                         {0.98415, 0.541015625, 0.528625488281, 1.2389203125},
                                         {0.885735, 0.15576171875, 0.587547302246, 1.15062398437}};

TEST(OptimizerGoldenTest, Lamb) {
  ExpectGolden(absl::StrCat("lamb_optimizer { ", kNumbers, " }"), kLambGolden);
}

TEST(OptimizerGoldenTest, LambAdaptsVectorsIfTheConfigSaysSo) {
  ExpectGolden(absl::StrCat("lamb_optimizer { adapt_all_variables: true ", kNumbers, " }"),
               kLambGolden, "", {1});
}

}  // namespace
}  // namespace pushpull
