#include "ps_server/core/expected_contributions.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ReplicaSamples = std::vector<std::pair<uint32_t, uint64_t>>;

ps::ApplyRequest Applied(const ReplicaSamples& contributions, bool clipped = false) {
  ps::ApplyRequest request;
  for (const auto& [replica, samples] : contributions) {
    ps::Contribution* const contribution = request.add_contributions();
    contribution->set_replica(replica);
    contribution->set_samples(samples);
  }
  if (clipped) request.add_variable_squared_norms(1.0);
  return request;
}

ReplicaSamples After(ExpectedContributions* expected, uint32_t replica) {
  ReplicaSamples result;
  for (const auto& [other, samples] : expected->AfterChunkOf(replica)) {
    result.emplace_back(other, samples);
  }
  return result;
}

const ReplicaSamples kNothing;

TEST(ExpectedContributionsTest, ExpectsTheContributorsOfTheLastSynchronousStep) {
  ExpectedContributions expected(/*sync=*/true, /*tasks=*/3);
  EXPECT_EQ(After(&expected, 0), kNothing);
  expected.NoteApplied(Applied({{0, 4}, {2, 5}, {3, 0}}));  // replica 3's contribution is void
  for (const uint32_t replica : {0, 2, 7}) {
    EXPECT_EQ(After(&expected, replica), (ReplicaSamples{{0, 4}, {2, 5}}));
  }
  expected.NoteApplied(Applied({{1, 6}}));
  EXPECT_EQ(After(&expected, 1), (ReplicaSamples{{1, 6}}));
  expected.Forget();
  EXPECT_EQ(After(&expected, 1), kNothing);
}

TEST(ExpectedContributionsTest, ExpectsTheFirstKnownReplicaInAsynchronousMode) {
  ExpectedContributions expected(/*sync=*/false, /*tasks=*/1);
  EXPECT_EQ(After(&expected, 0), kNothing);
  expected.NoteApplied(Applied({{0, 4}}));
  expected.NoteApplied(Applied({{1, 5}}));
  EXPECT_EQ(After(&expected, 2), kNothing);  // an unknown replica, which must not block others
  EXPECT_EQ(After(&expected, 1), (ReplicaSamples{{1, 5}}));
  EXPECT_EQ(After(&expected, 0), kNothing);
  EXPECT_EQ(After(&expected, 1), (ReplicaSamples{{1, 5}}));
  expected.NoteApplied(Applied({{1, 6}}));
  EXPECT_EQ(After(&expected, 0), (ReplicaSamples{{0, 4}}));
  expected.NoteApplied(Applied({{0, 0}}));  // void: the earlier number of samples stays
  EXPECT_EQ(After(&expected, 0), (ReplicaSamples{{0, 4}}));
  expected.Forget();
  EXPECT_EQ(After(&expected, 0), kNothing);
}

TEST(ExpectedContributionsTest, ExpectsNothingInAsynchronousModeWithSeveralTasks) {
  ExpectedContributions expected(/*sync=*/false, /*tasks=*/2);
  expected.NoteApplied(Applied({{0, 4}}));
  EXPECT_EQ(After(&expected, 0), kNothing);
}

TEST(ExpectedContributionsTest, ExpectsNothingWhenGradientsAreClipped) {
  for (const bool sync : {false, true}) {
    ExpectedContributions expected(sync, /*tasks=*/1);
    expected.NoteApplied(Applied({{0, 4}}));
    expected.NoteApplied(Applied({{0, 4}}, /*clipped=*/true));
    EXPECT_EQ(After(&expected, 0), kNothing);
  }
}

}  // namespace
}  // namespace pushpull
