#include "common/optimizer/learning_rate.h"

#include <cmath>
#include <numbers>
#include <string>

#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

LearningRateSchedule Make(const std::string& text) {
  config::LearningRate config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return LearningRateSchedule(config);
}

TEST(LearningRateTest, Constant) {
  const LearningRateSchedule schedule = Make("constant_learning_rate { learning_rate: 0.25 }");
  EXPECT_EQ(schedule.At(0), 0.25f);
  EXPECT_EQ(schedule.At(1000000000000), 0.25f);
  EXPECT_EQ(Make("constant_learning_rate { }").At(5), 0.002f);
}

TEST(LearningRateTest, ExponentialStaircaseDropsAtMultiplesOfDecaySteps) {
  const LearningRateSchedule schedule = Make(
      "exponential_decay_learning_rate { initial_learning_rate: 1 decay_steps: 10 "
      "decay_factor: 0.5 }");
  EXPECT_EQ(schedule.At(0), 1.0f);
  EXPECT_EQ(schedule.At(9), 1.0f);
  EXPECT_EQ(schedule.At(10), 0.5f);
  EXPECT_EQ(schedule.At(19), 0.5f);
  EXPECT_EQ(schedule.At(20), 0.25f);
}

TEST(LearningRateTest, ExponentialWithoutStaircaseDecaysContinuously) {
  const LearningRateSchedule schedule = Make(
      "exponential_decay_learning_rate { initial_learning_rate: 1 decay_steps: 10 "
      "decay_factor: 0.25 staircase: false }");
  EXPECT_EQ(schedule.At(0), 1.0f);
  EXPECT_FLOAT_EQ(schedule.At(5), 0.5f);
  EXPECT_FLOAT_EQ(schedule.At(10), 0.25f);
  EXPECT_FLOAT_EQ(schedule.At(3), static_cast<float>(std::pow(0.25, 0.3)));
}

TEST(LearningRateTest, DecayBeginsAfterBurnInWhoseRateDefaultsToTheInitialRate) {
  const std::string rest =
      "initial_learning_rate: 1 decay_steps: 10 decay_factor: 0.5 burnin_steps: 4 ";
  const LearningRateSchedule schedule =
      Make("exponential_decay_learning_rate { " + rest + "burnin_learning_rate: 0.125 }");
  EXPECT_EQ(schedule.At(0), 0.125f);
  EXPECT_EQ(schedule.At(3), 0.125f);
  EXPECT_EQ(schedule.At(4), 1.0f);
  EXPECT_EQ(schedule.At(13), 1.0f);
  EXPECT_EQ(schedule.At(14), 0.5f);
  EXPECT_EQ(Make("exponential_decay_learning_rate { " + rest + "}").At(0), 1.0f);
}

TEST(LearningRateTest, ExponentialNeverFallsBelowTheMinimum) {
  const LearningRateSchedule schedule = Make(
      "exponential_decay_learning_rate { initial_learning_rate: 1 decay_steps: 1 "
      "decay_factor: 0.5 min_learning_rate: 0.2 }");
  EXPECT_EQ(schedule.At(2), 0.25f);
  EXPECT_EQ(schedule.At(3), 0.2f);
  EXPECT_EQ(schedule.At(1000), 0.2f);
}

TEST(LearningRateTest, EachManualRateBeginsAtItsStep) {
  const LearningRateSchedule schedule = Make(
      "manual_step_learning_rate { initial_learning_rate: 0.5 "
      "schedule { step: 5 learning_rate: 0.25 } schedule { step: 10 learning_rate: 0.125 } }");
  EXPECT_EQ(schedule.At(0), 0.5f);
  EXPECT_EQ(schedule.At(4), 0.5f);
  EXPECT_EQ(schedule.At(5), 0.25f);
  EXPECT_EQ(schedule.At(9), 0.25f);
  EXPECT_EQ(schedule.At(10), 0.125f);
  EXPECT_EQ(schedule.At(1 << 30), 0.125f);
  EXPECT_EQ(Make("manual_step_learning_rate { initial_learning_rate: 0.5 }").At(7), 0.5f);
}

TEST(LearningRateTest, ManualWarmupIsLinearUpToTheFirstEntry) {
  const LearningRateSchedule schedule = Make(
      "manual_step_learning_rate { initial_learning_rate: 0.5 warmup: true "
      "schedule { step: 4 learning_rate: 1.5 } schedule { step: 10 learning_rate: 0.125 } }");
  EXPECT_EQ(schedule.At(0), 0.5f);
  EXPECT_EQ(schedule.At(1), 0.75f);
  EXPECT_EQ(schedule.At(3), 1.25f);
  EXPECT_EQ(schedule.At(4), 1.5f);
  EXPECT_EQ(schedule.At(10), 0.125f);
}

TEST(LearningRateTest, CosineWithWarmup) {
  const LearningRateSchedule schedule = Make(
      "cosine_decay_learning_rate { learning_rate_base: 1 total_steps: 110 "
      "warmup_learning_rate: 0.5 warmup_steps: 10 }");
  EXPECT_EQ(schedule.At(0), 0.5f);
  EXPECT_FLOAT_EQ(schedule.At(9), 0.95f);
  EXPECT_EQ(schedule.At(10), 1.0f);
  EXPECT_FLOAT_EQ(schedule.At(35), static_cast<float>(0.5 * (1 + std::cos(std::numbers::pi / 4))));
  EXPECT_FLOAT_EQ(schedule.At(60), 0.5f);
  EXPECT_NEAR(schedule.At(110), 0.0f, 1e-7);
  EXPECT_EQ(schedule.At(111), 0.0f);
}

TEST(LearningRateTest, CosineHoldsTheBaseRate) {
  const LearningRateSchedule schedule = Make(
      "cosine_decay_learning_rate { learning_rate_base: 1 total_steps: 130 "
      "warmup_learning_rate: 0 warmup_steps: 10 hold_base_rate_steps: 20 }");
  EXPECT_FLOAT_EQ(schedule.At(9), 0.9f);
  EXPECT_EQ(schedule.At(10), 1.0f);
  EXPECT_EQ(schedule.At(30), 1.0f);
  EXPECT_LT(schedule.At(31), 1.0f);
  EXPECT_FLOAT_EQ(schedule.At(80), 0.5f);
  const LearningRateSchedule only_hold = Make(
      "cosine_decay_learning_rate { learning_rate_base: 1 total_steps: 30 "
      "warmup_learning_rate: 0 warmup_steps: 10 hold_base_rate_steps: 20 }");
  EXPECT_EQ(only_hold.At(30), 1.0f);
  EXPECT_EQ(only_hold.At(31), 0.0f);
}

}  // namespace
}  // namespace pushpull
