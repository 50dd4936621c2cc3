// What a clone does after an error of a kind that it can recover from: the job ends with the
// weights of an undisturbed one, bit for bit.
#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_writer.h"
#include "common/file_system.h"
#include "tests/testutil/job/test_job.h"

namespace pushpull {
namespace {

constexpr uint64_t kSteps = 20;

// Damages the messages `method` whose number among those of the method is in [first, last].
class Damage {
 public:
  Damage(absl::string_view method, int first, int last)
      : method_(method), first_(first), last_(last) {}
  FaultHook hook() {
    return [this](const MessageInfo& message) {
      CallFault fault;
      if (message.method == method_) {
        const int number = ++seen_;
        fault.damage = number >= first_ && number <= last_;
        if (fault.damage) ++done_;
      }
      return fault;
    };
  }
  int done() const { return done_.load(); }

 private:
  const absl::string_view method_;
  const int first_;
  const int last_;
  std::atomic<int> seen_{0};
  std::atomic<int> done_{0};
};

TEST(CloneRecoveryTest, WhatIsDamagedOnTheWayIsSentAgain) {
  const std::vector<float> calm = TrainedState(2);
  ASSERT_FALSE(calm.empty());
  for (const char* method : {"PushChunk", "Pull"}) {
    for (const int tasks : {1, 2}) {
      Damage damage(method, 7, 9);
      TestCloneOptions clones;
      clones.hook = damage.hook();
      EXPECT_EQ(TrainedState(2, {.tasks = tasks}, clones), calm) << method << ", " << tasks;
      EXPECT_EQ(damage.done(), 3);
    }
  }
}

// A clock that stands still, so that the clone's patience with a silent server does not depend on
// how fast this machine is.
class StandingClock final : public Clock {
 public:
  absl::Duration Now() const override { return absl::Seconds(1000); }
  void Sleep(absl::Duration duration) override {
    absl::SleepFor(std::min(duration, absl::Milliseconds(5)));
  }
};

// The last step is applied, but the clone has not heard that it is published; then the server dies
// and comes back with an older checkpoint.
TEST(CloneRecoveryTest, RollbackAfterTheLastStepIsTrainedAgain) {
  const std::string saves = "save_checkpoints_steps: 15";
  const std::vector<float> calm = TrainedState(1, {.train_config = saves});
  ASSERT_FALSE(calm.empty());
  TestFolder folder;
  TestServer server(folder, {.train_config = saves, .lease = absl::Minutes(5)});
  ASSERT_TRUE(server.Start().ok());
  StandingClock clock;
  std::atomic<bool> heartbeats_held{true};
  std::atomic<int> last_positions{0};
  TestCloneOptions options;
  options.clock = &clock;
  options.hook = [&](const MessageInfo& message) {
    while (message.method == "Heartbeat" && heartbeats_held.load() && !server.has_given_up()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    return CallFault();
  };
  options.gradient_hook = [&](uint64_t position, uint32_t, GradientResult*, absl::Span<float>) {
    if (position + 1 == kSteps) ++last_positions;
  };
  TestClone clone(&server, options);
  ASSERT_TRUE(server.WaitForEnd().ok());
  server.Kill();
  const std::string newest = server.train_dir() + "/" + CheckpointName(kSteps);
  ASSERT_TRUE(RemoveRecursively(server.files(), newest).ok());
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(server.Await([](const auto& status) { return status.version() == 15; }));
  heartbeats_held.store(false);
  const absl::Status end = server.WaitAndClose();
  EXPECT_TRUE(end.ok()) << end;
  const absl::Status trained = clone.Join();
  EXPECT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(last_positions.load(), 2);
  EXPECT_EQ(server.Checkpointed(kSteps), calm);
}

}  // namespace
}  // namespace pushpull
