// Checks every invariant of the protocol (simulator.h) in random schedules. The environment
// variable PUSHPULL_SIM_SCHEDULES sets the number of schedules over all modes, and
// PUSHPULL_SIM_SEED=n runs only the schedule with seed n in each mode.
#include <cstdio>
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
    sum.counts += result.counts;
    sum.seconds += result.seconds;
  }
  RecordProperty("events", std::to_string(sum.counts.events));
  std::printf("%s, %.0f s of virtual time\n", ToString(sum.counts).c_str(), sum.seconds);
  if (only == 0) {
    // The schedules must contain enough faults, because the test would prove little without them.
    EXPECT_GT(sum.counts.crashes, count / 4);
    EXPECT_GT(sum.counts.rollbacks, 0u);
    EXPECT_GT(sum.counts.saves, count / 4);
    EXPECT_GT(sum.counts.evictions, count / 10);
    EXPECT_GT(sum.counts.moves, count / 10);
    EXPECT_GT(sum.counts.removals, count / 4);
    EXPECT_GT(sum.counts.chunks_kept, count / 4);
    if (GetParam() != Mode::kAsync) {
      EXPECT_GT(sum.counts.early_pulls, count / 10);
      EXPECT_GT(sum.counts.scales, count / 4);
      EXPECT_GT(sum.counts.divisions, count / 4);
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
    EXPECT_EQ(first.counts, second.counts) << ToString(first.counts);
    EXPECT_EQ(first.seconds, second.seconds);
  }
}

}  // namespace
}  // namespace pushpull::sim
