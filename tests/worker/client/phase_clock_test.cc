#include "worker/client/phase_clock.h"

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tests/testkit/fake_clock.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

double Sum(const ps::PhaseSeconds& seconds) {
  return seconds.input() + seconds.pull() + seconds.compute() + seconds.push() + seconds.wait();
}

TEST(PhaseClock, SumsSecondsPerPhase) {
  FakeClock clock;
  PhaseClock phases(&clock);
  EXPECT_EQ(phases.phase(), Phase::kWait);
  clock.Advance(absl::Seconds(5));
  for (int step = 0; step < 3; ++step) {
    phases.Enter(Phase::kInput);
    clock.Advance(absl::Milliseconds(10));
    phases.Enter(Phase::kCompute);
    clock.Advance(absl::Milliseconds(200));
    phases.Enter(Phase::kPush);
    clock.Advance(absl::Milliseconds(30));
    phases.Enter(Phase::kWait);
    clock.Advance(absl::Milliseconds(4));
    phases.Enter(Phase::kPull);
    clock.Advance(absl::Milliseconds(50));
  }
  const ps::PhaseSeconds seconds = phases.Seconds();
  EXPECT_NEAR(seconds.input(), 0.030, 1e-9);
  EXPECT_NEAR(seconds.compute(), 0.600, 1e-9);
  EXPECT_NEAR(seconds.push(), 0.090, 1e-9);
  EXPECT_NEAR(seconds.wait(), 5.012, 1e-9);
  EXPECT_NEAR(seconds.pull(), 0.150, 1e-9) << "the running phase must count";
}

TEST(PhaseClock, TheSumIsTheTimeSinceTheStart) {
  FakeClock clock;
  const absl::Duration start = clock.Now();
  PhaseClock phases(&clock);
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    clock.Advance(absl::Nanoseconds(random() % 1'000'000));
    phases.Enter(static_cast<Phase>(random() % kNumPhases), {.step = random() % 3});
    ASSERT_NEAR(Sum(phases.Seconds()), absl::ToDoubleSeconds(clock.Now() - start), 1e-6) << i;
  }
}

TEST(PhaseClock, PhasesHaveTheNamesOfTheProtocol) {
  EXPECT_EQ(PhaseName(Phase::kInput), "input");
  EXPECT_EQ(PhaseName(Phase::kPull), "pull");
  EXPECT_EQ(PhaseName(Phase::kCompute), "compute");
  EXPECT_EQ(PhaseName(Phase::kPush), "push");
  EXPECT_EQ(PhaseName(Phase::kWait), "wait");
}

TEST(PhaseClock, TracesEachPhaseOnceWithoutGaps) {
  FakeClock clock;
  MemoryFileSystem files;
  auto writer = TraceWriter::Create(&files, "/t", {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  {
    PhaseClock phases(&clock, (*writer)->Row(1, "clone 0", 1, "training"));
    clock.Advance(absl::Seconds(1));
    phases.Enter(Phase::kCompute, {.step = 4, .replica = 1, .version = 3});
    clock.Advance(absl::Seconds(2));
    phases.Enter(Phase::kCompute, {.step = 4, .replica = 1, .version = 3});  // continues the phase
    clock.Advance(absl::Seconds(1));
    phases.Enter(Phase::kCompute,
                 {.step = 4, .replica = 2, .version = 3});  // the same phase for another replica
    clock.Advance(absl::Seconds(1));
  }
  ASSERT_EQ((*writer)->Close(), absl::OkStatus());
  std::vector<nlohmann::json> spans;
  for (const auto& event : nlohmann::json::parse(*ReadWholeFile(files, "/t"))) {
    if (event["ph"] == "X") spans.push_back(event);
  }
  ASSERT_EQ(spans.size(), 3);
  EXPECT_EQ(spans[0]["name"], "wait");
  EXPECT_EQ(spans[0]["args"], nlohmann::json::object());
  EXPECT_EQ(spans[1]["name"], "compute");
  EXPECT_EQ(spans[1]["dur"], 3e6);
  EXPECT_EQ(spans[1]["args"], (nlohmann::json{{"step", 4}, {"replica", 1}, {"version", 3}}));
  EXPECT_EQ(spans[2]["args"]["replica"], 2);
  for (size_t i = 1; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i]["ts"], spans[i - 1]["ts"].get<double>() + spans[i - 1]["dur"].get<double>());
  }
}

TEST(PhaseClock, MayBeReadWhileItRuns) {
  SteadyClock clock;
  const absl::Duration start = clock.Now();
  PhaseClock phases(&clock);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    double last = 0.0;
    while (!stop.load()) {
      const double sum = Sum(phases.Seconds());
      EXPECT_GE(sum, last - 1e-9);
      last = sum;
    }
  });
  for (int i = 0; i < 20000; ++i) phases.Enter(static_cast<Phase>(i % kNumPhases));
  stop.store(true);
  reader.join();
  const double sum = Sum(phases.Seconds());
  EXPECT_LE(sum, absl::ToDoubleSeconds(clock.Now() - start) + 1e-6);
}

}  // namespace
}  // namespace pushpull
