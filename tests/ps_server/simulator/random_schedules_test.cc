// Checks every invariant of the protocol (simulator.h) in random schedules. The environment
// variable PUSHPULL_SIM_SCHEDULES sets the number of schedules over all modes, and
// PUSHPULL_SIM_SEED=n runs only the schedule with seed n in each mode.
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

#include "tests/ps_server/simulator/simulator.h"

namespace pushpull::sim {
namespace {

constexpr uint64_t kDefaultSchedules = 2100;  // Over all modes.

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class RandomSchedules : public testing::TestWithParam<Mode> {};

TEST_P(RandomSchedules, KeepEveryInvariant) {
  const uint64_t only = FromEnvironment("PUSHPULL_SIM_SEED", 0);
  const uint64_t count = FromEnvironment("PUSHPULL_SIM_SCHEDULES", kDefaultSchedules) / 3;
  SimResult sum;
  for (uint64_t seed = only > 0 ? only : 1; seed <= (only > 0 ? only : count); ++seed) {
    const SimConfig config = RandomConfig(GetParam(), seed);
    const SimResult result = RunSchedule(config);
    ASSERT_EQ(result.violation, "") << ToString(config) << "\nreplay: PUSHPULL_SIM_SEED=" << seed
                                    << " --gtest_filter='*KeepEveryInvariant*'";
    sum.events += result.events;
    sum.messages += result.messages;
    sum.crashes += result.crashes;
    sum.rollbacks += result.rollbacks;
    sum.saves += result.saves;
    sum.evictions += result.evictions;
    sum.scales += result.scales;
    sum.divisions += result.divisions;
    sum.moves += result.moves;
    sum.removals += result.removals;
    sum.early_pulls += result.early_pulls;
    sum.chunks_kept += result.chunks_kept;
    sum.seconds += result.seconds;
  }
  RecordProperty("events", std::to_string(sum.events));
  std::printf(
      "%llu events, %llu messages, %llu server crashes, %llu rollbacks, %llu checkpoints "
      "requested by an administrator, %llu evictions, %llu changes of the number of replicas, %llu "
      "steps divided anew, %llu moves to another machine, %llu state files "
      "removed, %llu early pulls, %llu chunks applied ahead, %.0f s of virtual time\n",
      static_cast<unsigned long long>(sum.events), static_cast<unsigned long long>(sum.messages),
      static_cast<unsigned long long>(sum.crashes), static_cast<unsigned long long>(sum.rollbacks),
      static_cast<unsigned long long>(sum.saves), static_cast<unsigned long long>(sum.evictions),
      static_cast<unsigned long long>(sum.scales), static_cast<unsigned long long>(sum.divisions),
      static_cast<unsigned long long>(sum.moves), static_cast<unsigned long long>(sum.removals),
      static_cast<unsigned long long>(sum.early_pulls),
      static_cast<unsigned long long>(sum.chunks_kept), sum.seconds);
  if (only == 0) {
    // The schedules must contain enough faults, because the test would prove little without them.
    EXPECT_GT(sum.crashes, count / 4);
    EXPECT_GT(sum.rollbacks, 0u);
    EXPECT_GT(sum.saves, count / 4);
    EXPECT_GT(sum.evictions, count / 10);
    EXPECT_GT(sum.moves, count / 10);
    EXPECT_GT(sum.removals, count / 4);
    EXPECT_GT(sum.chunks_kept, count / 4);
    if (GetParam() != Mode::kAsync) {
      EXPECT_GT(sum.early_pulls, count / 10);
      EXPECT_GT(sum.scales, count / 4);
      EXPECT_GT(sum.divisions, count / 4);
    }
  }
}

std::string ModeName(const testing::TestParamInfo<Mode>& info) {
  constexpr const char* kNames[] = {"SyncWait", "SyncDrop", "Async"};
  return kNames[static_cast<int>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(Modes, RandomSchedules,
                         testing::Values(Mode::kSyncWait, Mode::kSyncDrop, Mode::kAsync), ModeName);

TEST(Simulator, RunsTheSameScheduleForTheSameSeed) {
  for (const Mode mode : {Mode::kSyncWait, Mode::kSyncDrop, Mode::kAsync}) {
    const SimResult first = RunSchedule(RandomConfig(mode, 5));
    const SimResult second = RunSchedule(RandomConfig(mode, 5));
    EXPECT_EQ(first.events, second.events);
    EXPECT_EQ(first.seconds, second.seconds);
  }
}

}  // namespace
}  // namespace pushpull::sim
