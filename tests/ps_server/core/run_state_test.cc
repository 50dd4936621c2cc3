#include "ps_server/core/run_state.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/random.h"

namespace pushpull {
namespace {

using run_state_event::Ending;
using run_state_event::JobRestored;
using run_state_event::ShardRestored;
using run_state_event::StateFileAdopted;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Describes each action as "adopt 1", "write", "remove" or "keep: REASON".
std::vector<std::string> Describe(const std::vector<RunStateAction>& actions) {
  std::vector<std::string> words;
  for (const RunStateAction& action : actions) {
    switch (action.kind) {
      case RunStateAction::Kind::kAdoptStateFile:
        words.push_back("adopt " + std::to_string(action.shard));
        break;
      case RunStateAction::Kind::kWriteTrainDir:
        words.push_back("write");
        break;
      case RunStateAction::Kind::kRemoveStateFiles:
        words.push_back("remove");
        break;
      case RunStateAction::Kind::kKeepStateFiles:
        words.push_back("keep: " + action.reason);
        break;
    }
  }
  return words;
}

std::vector<std::string> Do(RunState* state, const RunStateEvent& event) {
  return Describe(state->Handle(event));
}

TEST(RunStateTest, AServerThatEndsBeforeItHasRecoveredRemovesNothing) {
  RunState fresh(1);
  EXPECT_THAT(Do(&fresh, Ending{{120}, 120}), ElementsAre(HasSubstr("before it has recovered")));
  RunState half(2);
  half.Handle(ShardRestored{1});
  half.Handle(StateFileAdopted{1});
  EXPECT_THAT(Do(&half, Ending{{0, 0}, 0}), ElementsAre(HasSubstr("before it has recovered")));
}

TEST(RunStateTest, AStateFileIsAdoptedOnceWhenItsShardIsRestored) {
  RunState state(2);
  EXPECT_THAT(Do(&state, ShardRestored{1}), ElementsAre("adopt 1"));
  EXPECT_THAT(Do(&state, StateFileAdopted{1}), IsEmpty());
  EXPECT_THAT(Do(&state, ShardRestored{1}), IsEmpty());
  EXPECT_FALSE(state.all_restored());
  EXPECT_THAT(Do(&state, ShardRestored{0}), ElementsAre("adopt 0"));
  EXPECT_FALSE(state.all_restored());
  EXPECT_THAT(Do(&state, StateFileAdopted{0}), IsEmpty());
  EXPECT_TRUE(state.all_restored());
  EXPECT_THAT(Do(&state, JobRestored{}), ElementsAre("write"));
  EXPECT_THAT(Do(&state, JobRestored{}), IsEmpty()) << "the job was already restored";
}

TEST(RunStateTest, AStateFileThatCouldNotBeAdoptedIsAdoptedByTheNextRestore) {
  RunState state(1);
  EXPECT_THAT(Do(&state, ShardRestored{0}), ElementsAre("adopt 0"));
  EXPECT_THAT(Do(&state, ShardRestored{0}), ElementsAre("adopt 0")) << "the first one failed";
  EXPECT_FALSE(state.all_restored());
  EXPECT_THAT(Do(&state, Ending{{0}, 0}), ElementsAre(HasSubstr("before it has recovered")));
}

TEST(RunStateTest, RemovesStateFilesOnlyIfAVerifiedCheckpointIsAsNew) {
  const auto end = [](const Ending& ending) {
    RunState state(2);
    for (const int shard : {0, 1}) {
      state.Handle(ShardRestored{shard});
      state.Handle(StateFileAdopted{shard});
    }
    state.Handle(JobRestored{});
    return Do(&state, ending);
  };
  EXPECT_THAT(end({{120, 120}, 120}), ElementsAre("remove"));
  EXPECT_THAT(end({{120, 120}, 121}), ElementsAre("remove"));
  EXPECT_THAT(end({{120, 121}, 120}), ElementsAre(HasSubstr("version 121 is newer than")));
  EXPECT_THAT(end({{120, 120}, std::nullopt}), ElementsAre(HasSubstr("no checkpoint")));
  EXPECT_THAT(end({{1, 0}, 0}), ElementsAre(HasSubstr("keep")));
  EXPECT_THAT(end({{0, 0}, std::nullopt}), ElementsAre("remove")) << "no step has been applied";
  EXPECT_THAT(end({{std::nullopt, 0}, std::nullopt}), ElementsAre("remove"));
}

TEST(RunStateTest, IgnoresEventsAfterTheEnd) {
  RunState state(1);
  state.Handle(Ending{{std::nullopt}, std::nullopt});
  EXPECT_THAT(Do(&state, ShardRestored{0}), IsEmpty());
  EXPECT_THAT(Do(&state, Ending{{1}, 1}), IsEmpty());
}

// In every order of events, files change only after a restore, and a file is removed only if a
// verified checkpoint holds its version.
TEST(RunStateTest, NoOrderOfEventsLosesAVersion) {
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    CounterRandom random(seed, 0);
    const int shards = 1 + static_cast<int>(random.NextBelow(3));
    RunState state(shards);
    std::vector<bool> restored(shards, false), adopted(shards, false);
    bool job_restored = false;
    for (int i = 0; i < 8; ++i) {
      RunStateEvent event;
      Ending ending;
      switch (random.NextBelow(4)) {
        case 0:
        case 1: {
          const int shard = static_cast<int>(random.NextBelow(shards));
          event = ShardRestored{shard};
          restored[shard] = true;
          if (random.NextBelow(4) == 0) break;  // the file cannot be renamed
          for (const RunStateAction& action : state.Handle(event)) {
            ASSERT_EQ(action.kind, RunStateAction::Kind::kAdoptStateFile) << seed;
          }
          event = StateFileAdopted{shard};
          adopted[shard] = true;
          break;
        }
        case 2:
          if (!state.all_restored()) continue;
          event = JobRestored{};
          job_restored = true;
          break;
        default:
          for (int k = 0; k < shards; ++k) ending.newest_versions.push_back(random.NextBelow(4));
          if (random.NextBelow(3) > 0) ending.verified_step = random.NextBelow(4);
          event = ending;
      }
      for (const RunStateAction& action : state.Handle(event)) {
        if (action.kind == RunStateAction::Kind::kAdoptStateFile) {
          ASSERT_TRUE(restored[action.shard]) << seed;
        }
        if (action.kind == RunStateAction::Kind::kWriteTrainDir) {
          ASSERT_TRUE(job_restored) << seed;
        }
        if (action.kind != RunStateAction::Kind::kRemoveStateFiles) continue;
        for (int k = 0; k < shards; ++k) {
          ASSERT_TRUE(adopted[k]) << seed;
          const uint64_t newest = ending.newest_versions[k].value_or(0);
          ASSERT_TRUE(newest == 0 || newest <= ending.verified_step.value_or(0)) << seed;
        }
      }
    }
  }
}

}  // namespace
}  // namespace pushpull
