#include "common/config/training_length.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr uint64_t kMaxStep = std::numeric_limits<int64_t>::max();

uint64_t LastStep(const TrainingLimits& limits, uint64_t num_images) {
  TrainingLength length(limits);
  length.TakeNumImages(num_images);
  return length.last_step();
}

TEST(TrainingLengthTest, TheFirstLimitThatIsReachedCounts) {
  EXPECT_EQ(LastStep({}, 100), 0u);
  EXPECT_EQ(LastStep({.num_steps = 7}, 100), 7u);
  EXPECT_EQ(LastStep({.num_epochs = 3, .batch_size = 10}, 100), 30u);
  EXPECT_EQ(LastStep({.num_steps = 29, .num_epochs = 3, .batch_size = 10}, 100), 29u);
  EXPECT_EQ(LastStep({.num_steps = 31, .num_epochs = 3, .batch_size = 10}, 100), 30u);
}

TEST(TrainingLengthTest, TakesTheLimitsOfAConfig) {
  config::TrainEvalPipelineConfig config;
  config.mutable_train_config()->set_num_steps(70);
  config.mutable_train_config()->set_batch_size(10);
  config.mutable_train_config()->set_local_steps(2);
  config.mutable_train_input_reader()->set_num_epochs(3);
  EXPECT_EQ(LastStep(LimitsOf(config), 0), 70u);
  EXPECT_EQ(LastStep(LimitsOf(config), 100), 15u);
  config.mutable_train_config()->set_batch_size(0);
  config.mutable_train_config()->set_local_steps(0);
  EXPECT_EQ(LastStep(LimitsOf(config), 10), 30u);
}

TEST(TrainingLengthTest, RoundsUpOnceForAllEpochs) {
  // Three epochs of 103 images are 309 images. Rounding up each epoch would give 33 steps.
  EXPECT_EQ(LastStep({.num_epochs = 3, .batch_size = 10}, 103), 31u);
  EXPECT_EQ(LastStep({.num_epochs = 1, .batch_size = 10}, 101), 11u);
  EXPECT_EQ(LastStep({.num_epochs = 1, .batch_size = 10}, 99), 10u);
  EXPECT_EQ(LastStep({.num_epochs = 1, .batch_size = 1000}, 1), 1u);
}

TEST(TrainingLengthTest, AStepHasAllBatchesOfItsRound) {
  EXPECT_EQ(LastStep({.num_epochs = 3, .batch_size = 10, .local_steps = 4}, 100), 8u);
  EXPECT_EQ(LastStep({.num_epochs = 1, .batch_size = 10, .local_steps = 10}, 100), 1u);
}

TEST(TrainingLengthTest, LargeNumbersDoNotOverflow) {
  constexpr uint64_t kBatch = UINT32_MAX;
  EXPECT_EQ(LastStep({.num_epochs = 1, .batch_size = kBatch, .local_steps = kBatch}, UINT64_MAX),
            2u);
  const uint32_t epochs = std::numeric_limits<uint32_t>::max();
  const uint64_t images = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(LastStep({.num_epochs = epochs}, images), kMaxStep);
  EXPECT_EQ(LastStep({.num_epochs = 2}, (uint64_t{1} << 63) + 5), kMaxStep);
  EXPECT_EQ(LastStep({.num_epochs = 2, .batch_size = 16}, uint64_t{1} << 63), uint64_t{1} << 60);
  EXPECT_EQ(LastStep({.num_steps = 9, .num_epochs = epochs}, images), 9u);
  EXPECT_EQ(LastStep({.num_steps = images}, 0), kMaxStep);
}

TEST(TrainingLengthTest, OnlyTheStepsCountUntilTheImagesAreKnown) {
  TrainingLength length({.num_steps = 50, .num_epochs = 3, .batch_size = 10});
  EXPECT_TRUE(length.counts_images());
  EXPECT_EQ(length.last_step(), 50u);
  EXPECT_FALSE(length.EndsAt(49));
  EXPECT_TRUE(length.EndsAt(50));
  EXPECT_FALSE(length.TakeNumImages(0));
  EXPECT_TRUE(length.TakeNumImages(100));
  EXPECT_EQ(length.num_images(), 100u);
  EXPECT_FALSE(length.EndsAt(29));
  EXPECT_TRUE(length.EndsAt(30));
  EXPECT_TRUE(length.EndsAt(31));
  EXPECT_FALSE(length.TakeNumImages(7)) << "the first number counts";
  EXPECT_EQ(length.num_images(), 100u);
}

TEST(TrainingLengthTest, TheImagesOfARunWithoutEpochsDoNotMatter) {
  TrainingLength length({.num_steps = 50, .batch_size = 10});
  EXPECT_FALSE(length.counts_images());
  EXPECT_FALSE(length.TakeNumImages(100));
  EXPECT_EQ(length.num_images(), 0u);
  EXPECT_FALSE(TrainingLength().EndsAt(1000));
}

}  // namespace
}  // namespace pushpull
