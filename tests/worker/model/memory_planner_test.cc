#include "worker/model/memory_planner.h"

#include <vector>

#include "gtest/gtest.h"

#include "common/base/random.h"
#include "common/model/classifier.h"
#include "worker/model/fused_network.h"
#include "worker/model/network_memory.h"

namespace pushpull {
namespace {

// Expects buffers that are in use at the same step to lie apart, and all buffers to lie inside the
// block.
void ExpectSound(const std::vector<BufferRequest>& requests, const BufferPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].last_step < requests[i].first_step) {
      EXPECT_EQ(plan.offsets[i], BufferPlan::kAbsent);
      continue;
    }
    EXPECT_GE(plan.offsets[i], 0);
    EXPECT_LE(plan.offsets[i] + requests[i].size, plan.total);
    for (size_t j = 0; j < i; ++j) {
      const bool together = requests[i].first_step <= requests[j].last_step &&
                            requests[j].first_step <= requests[i].last_step;
      if (!together || plan.offsets[j] == BufferPlan::kAbsent) continue;
      EXPECT_TRUE(plan.offsets[i] + requests[i].size <= plan.offsets[j] ||
                  plan.offsets[j] + requests[j].size <= plan.offsets[i])
          << "requests " << j << " and " << i << " share memory and time";
    }
  }
}

TEST(MemoryPlannerTest, ReusesMemoryOfUnusedBuffers) {
  const std::vector<BufferRequest> requests = {{100, 0, 1}, {100, 1, 2}, {100, 2, 3}, {100, 3, 4}};
  const BufferPlan plan = PlanBuffers(requests, 16);
  ExpectSound(requests, plan);
  EXPECT_EQ(plan.total, 2 * 112);  // rounded up to 16
}

TEST(MemoryPlannerTest, RespectsAlignmentAndSkipsUnusedBuffers) {
  const std::vector<BufferRequest> requests = {{1, 0, 5}, {17, 0, 5}, {9, 3, 2}, {3, 0, 0}};
  const BufferPlan plan = PlanBuffers(requests, 16);
  ExpectSound(requests, plan);
  for (const int64_t offset : plan.offsets) {
    EXPECT_TRUE(offset == BufferPlan::kAbsent || offset % 16 == 0) << offset;
  }
  EXPECT_EQ(plan.offsets[2], BufferPlan::kAbsent);
}

TEST(MemoryPlannerTest, RandomRequestsNeverOverlap) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    CounterRandom random(seed, 0);
    std::vector<BufferRequest> requests;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random.NextBelow(40));
      requests.push_back({1 + static_cast<int64_t>(random.NextBelow(1000)), first,
                          first + static_cast<int>(random.NextBelow(12))});
    }
    ExpectSound(requests, PlanBuffers(requests, 16));
  }
}

FusedNetwork MakeMobilenet() {
  config::Classifier classifier;
  classifier.set_num_classes(10);
  classifier.mutable_feature_extractor()->set_type("mobilenet_v2");
  auto* resizer = classifier.mutable_image_resizer()->mutable_fixed_shape_resizer();
  resizer->set_height(96);
  resizer->set_width(96);
  return *FuseNetwork(BuildClassifier(classifier));
}

TEST(NetworkMemoryTest, PlansOfMobilenetAreSoundAndMuchSmallerThanTheirSum) {
  const FusedNetwork network = MakeMobilenet();
  const NetworkMemory training = PlanTrainingMemory(network, 8, 0, {4, 4});
  ExpectSound(training.requests, training.plan);
  const NetworkMemory inference = PlanInferenceMemory(network, 8, {4, 4});
  ExpectSound(inference.requests, inference.plan);
  int64_t sum = 0;
  for (const BufferRequest& request : training.requests) sum += request.size;
  EXPECT_LT(training.plan.total, sum * 3 / 4);
  EXPECT_LT(inference.plan.total, training.plan.total / 3);
}

TEST(NetworkMemoryTest, SkipSourcesShareTheGradientOfTheirSkip) {
  const FusedNetwork network = MakeMobilenet();
  const NetworkMemory memory = PlanTrainingMemory(network, 2, 0, {4, 4});
  int skips = 0;
  for (size_t l = 0; l < network.layers.size(); ++l) {
    const int source = network.layers[l].skip;
    if (source == FusedLayer::kNone) continue;
    ++skips;
    EXPECT_EQ(memory.layers[source].dz, memory.layers[l].dz);
    EXPECT_NE(memory.layers[source].applied, BufferPlan::kAbsent);
  }
  EXPECT_EQ(skips, 10);
}

TEST(NetworkMemoryTest, NarrowActivationsTakeHalfButStatisticsDoNot) {
  const FusedNetwork network = MakeMobilenet();
  const NetworkMemory wide = PlanTrainingMemory(network, 8, 0, {4, 4});
  const NetworkMemory narrow = PlanTrainingMemory(network, 8, 0, {2, 4});
  ExpectSound(narrow.requests, narrow.plan);
  int64_t wide_sum = 0, narrow_sum = 0;
  for (size_t i = 0; i < wide.requests.size(); ++i) {
    wide_sum += wide.requests[i].size;
    narrow_sum += narrow.requests[i].size;
  }
  EXPECT_GT(2 * narrow_sum, wide_sum);
  EXPECT_LT(narrow_sum, wide_sum * 51 / 100);
}

TEST(NetworkMemoryTest, LayersWithNothingToTrainGetNoGradients) {
  const FusedNetwork network = MakeMobilenet();
  const NetworkMemory memory = PlanTrainingMemory(network, 2, 30, {4, 4});
  for (int l = 0; l < 30; ++l) EXPECT_EQ(memory.layers[l].dz, BufferPlan::kAbsent) << l;
  EXPECT_NE(memory.layers[30].dz, BufferPlan::kAbsent);
  EXPECT_LT(memory.plan.total, PlanTrainingMemory(network, 2, 0, {4, 4}).plan.total);
}

}  // namespace
}  // namespace pushpull
