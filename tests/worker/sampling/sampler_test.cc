#include "worker/sampling/sampler.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "worker/sampling/permutation.h"

namespace pushpull {
namespace {

using Mode = SamplerOptions::Mode;

std::vector<Sample> Batch(const Sampler& sampler, int64_t step, int replica) {
  std::vector<Sample> samples;
  sampler.GetBatch(step, replica, &samples);
  return samples;
}

std::vector<int64_t> GlobalBatch(const Sampler& sampler, int64_t step) {
  std::vector<int64_t> indices;
  for (int replica = 0; replica < sampler.options().num_replicas; ++replica) {
    for (const Sample& sample : Batch(sampler, step, replica)) indices.push_back(sample.index);
  }
  return indices;
}

TEST(PermutationTest, IsAPermutationOfEverySize) {
  for (uint64_t size = 1; size <= 300; ++size) {
    std::set<uint64_t> seen;
    const Permutation permute(7, 3, size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t image = permute(i);
      ASSERT_LT(image, size);
      seen.insert(image);
    }
    ASSERT_EQ(seen.size(), size);
  }
}

TEST(SamplerTest, AnEvaluationCanSpreadItsExamplesOverTheSource) {
  const auto indices = [](int64_t num_examples, int64_t spread_over) {
    const Sampler sampler({.mode = Mode::kEvaluate,
                           .num_examples = num_examples,
                           .spread_over = spread_over,
                           .batch_size = 3,
                           .shuffle = false});
    std::vector<int64_t> result;
    for (int64_t step = 0; step < 4; ++step) {
      for (const int64_t index : GlobalBatch(sampler, step)) result.push_back(index);
    }
    return result;
  };
  EXPECT_THAT(indices(5, 0), testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(indices(5, 5), testing::ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(indices(5, 12), testing::ElementsAre(0, 2, 4, 7, 9));
  EXPECT_THAT(indices(4, 60), testing::ElementsAre(0, 15, 30, 45));
}

TEST(PermutationTest, DependsOnSeedAndEpochAndLooksRandom) {
  constexpr int kSize = 60000;
  const Permutation a(1, 0, kSize);
  const Permutation next_epoch(1, 1, kSize);
  const Permutation other_seed(2, 0, kSize);
  int same_epoch = 0;
  int same_seed = 0;
  int fixed = 0;
  int rising = 0;
  std::vector<int> low_counts(10);  // where the members of the first tenth go
  for (int i = 0; i < kSize; ++i) {
    same_epoch += a(i) == next_epoch(i) ? 1 : 0;
    same_seed += a(i) == other_seed(i) ? 1 : 0;
    fixed += a(i) == static_cast<uint64_t>(i) ? 1 : 0;
    if (i > 0) rising += a(i) > a(i - 1) ? 1 : 0;
    if (i < kSize / 10) ++low_counts[a(i) * 10 / kSize];
  }
  // For random orders the expected count is 1.
  EXPECT_LE(same_epoch, 10);
  EXPECT_LE(same_seed, 10);
  EXPECT_LE(fixed, 10);
  EXPECT_NEAR(rising, kSize / 2, 500);
  for (const int count : low_counts) EXPECT_NEAR(count, 600, 120);
}

TEST(SamplerTest, RemainderGoesToTheLastReplicas) {
  const auto sizes = [](int64_t batch, int replicas) {
    const Sampler sampler =
        Sampler({.num_examples = 100, .batch_size = batch, .num_replicas = replicas});
    std::vector<int64_t> result;
    for (int replica = 0; replica < replicas; ++replica)
      result.push_back(sampler.ReplicaBatchSize(replica));
    EXPECT_EQ(std::accumulate(result.begin(), result.end(), int64_t{0}), batch);
    return result;
  };
  EXPECT_EQ(sizes(15, 2), (std::vector<int64_t>{7, 8}));
  EXPECT_EQ(sizes(31, 3), (std::vector<int64_t>{10, 10, 11}));
  EXPECT_EQ(sizes(32, 3), (std::vector<int64_t>{10, 11, 11}));
  EXPECT_EQ(sizes(3, 3), (std::vector<int64_t>{1, 1, 1}));
}

TEST(SamplerTest, GlobalBatchDoesNotDependOnTheSplit) {
  const Sampler whole = Sampler({.seed = 5, .num_examples = 101, .batch_size = 31});
  for (int replicas = 1; replicas <= 31; ++replicas) {
    const Sampler split =
        Sampler({.seed = 5, .num_examples = 101, .batch_size = 31, .num_replicas = replicas});
    for (int64_t step = 0; step < 20; ++step) {
      ASSERT_EQ(GlobalBatch(split, step), GlobalBatch(whole, step))
          << replicas << " replicas, " << step;
    }
  }
}

TEST(SamplerTest, PartsOfAnySizeMakeUpTheGlobalBatch) {
  const Sampler whole = Sampler({.seed = 5, .num_examples = 101, .batch_size = 31});
  for (const std::vector<int64_t>& shares :
       {std::vector<int64_t>{31}, {1, 30}, {20, 4, 7}, {7, 20, 4}}) {
    for (int64_t step = 0; step < 20; ++step) {
      std::vector<Sample> batch;
      for (int replica = 0; replica < static_cast<int>(shares.size()); ++replica) {
        std::vector<Sample> part;
        whole.GetPart(step, PartOf(shares, replica), &part);
        EXPECT_EQ(static_cast<int64_t>(part.size()), shares[replica]);
        batch.insert(batch.end(), part.begin(), part.end());
      }
      const std::vector<Sample> expected = Batch(whole, step, 0);
      ASSERT_EQ(batch.size(), expected.size());
      for (size_t i = 0; i < batch.size(); ++i) {
        EXPECT_EQ(batch[i].position, expected[i].position);
        EXPECT_EQ(batch[i].index, expected[i].index);
      }
    }
  }
}

TEST(SamplerTest, EveryEpochShowsEachExampleOnceInAnotherOrder) {
  constexpr int kSize = 37;
  const Sampler sampler =
      Sampler({.seed = 9, .num_examples = kSize, .batch_size = 5, .num_replicas = 2});
  std::vector<int64_t> sequence;  // in the order of positions
  for (int64_t step = 0; sequence.size() < 3 * kSize; ++step) {
    for (int replica = 0; replica < 2; ++replica) {
      for (const Sample& sample : Batch(sampler, step, replica)) {
        EXPECT_EQ(sample.position, static_cast<int64_t>(sequence.size()));
        sequence.push_back(sample.index);
      }
    }
  }
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<int64_t> part(sequence.begin() + epoch * kSize,
                              sequence.begin() + (epoch + 1) * kSize);
    orders.insert(part);
    std::sort(part.begin(), part.end());
    for (int i = 0; i < kSize; ++i) ASSERT_EQ(part[i], i) << "epoch " << epoch;
  }
  EXPECT_EQ(orders.size(), 3);
}

TEST(SamplerTest, AsyncReplicasHaveDisjointSequences) {
  const Sampler sampler = Sampler(
      {.mode = Mode::kAsync, .seed = 1, .num_examples = 1000, .batch_size = 8, .num_replicas = 3});
  std::set<int64_t> positions;
  for (int64_t sequence = 0; sequence < 10; ++sequence) {
    for (int replica = 0; replica < 3; ++replica) {
      const std::vector<Sample> batch = Batch(sampler, sequence, replica);
      ASSERT_EQ(batch.size(), 8);
      for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(batch[i].position, (sequence * 3 + replica) * 8 + i);
        positions.insert(batch[i].position);
      }
    }
  }
  EXPECT_EQ(positions.size(), 240);
}

TEST(SamplerTest, EvaluationIsOnePassInOrder) {
  const Sampler sampler =
      Sampler({.mode = Mode::kEvaluate, .num_examples = 10, .batch_size = 4, .shuffle = false});
  EXPECT_EQ(GlobalBatch(sampler, 0), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(GlobalBatch(sampler, 2), (std::vector<int64_t>{8, 9}));
  EXPECT_EQ(GlobalBatch(sampler, 3), (std::vector<int64_t>{}));
  EXPECT_EQ(GlobalBatch(sampler, 1000), (std::vector<int64_t>{}));
}

TEST(SamplerTest, KeepsTheOrderOfTheSourceWithoutShuffle) {
  const Sampler sampler = Sampler({.num_examples = 5, .batch_size = 4, .shuffle = false});
  EXPECT_EQ(GlobalBatch(sampler, 0), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(GlobalBatch(sampler, 1), (std::vector<int64_t>{4, 0, 1, 2}));
}

TEST(SamplerTest, AllowsABatchLargerThanTheSet) {
  const Sampler sampler = Sampler({.num_examples = 3, .batch_size = 8, .num_replicas = 3});
  std::vector<int64_t> batch = GlobalBatch(sampler, 0);
  std::sort(batch.begin(), batch.begin() + 3);
  EXPECT_EQ(std::vector<int64_t>(batch.begin(), batch.begin() + 3),
            (std::vector<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace pushpull
