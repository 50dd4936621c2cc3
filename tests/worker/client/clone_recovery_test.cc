// What a clone does after an error from which it can recover. The job ends with the same weights as
// an undisturbed job, bit for bit.
#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/base/file_system.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "tests/testkit/job/step_gate.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

constexpr uint64_t kRecoverySteps = 20;

// Damages the messages number `first` to `last` of a method.
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

TEST(CloneRecoveryTest, SendsDamagedMessagesAgain) {
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

// One clone computes silently until its lease ends, and the other clone takes over its replica. The
// silent clone's contribution is refused with FENCED, and it continues with the next steps.
TEST(CloneRecoveryTest, AFencedCloneContinuesWithTheNextSteps) {
  const std::vector<float> calm = TrainedState(2);
  ASSERT_FALSE(calm.empty());
  for (const int tasks : {1, 2}) {
    TestFolder folder;
    TestServer server(folder, {.tasks = tasks, .lease = absl::Seconds(1)});
    ASSERT_TRUE(server.Start().ok());
    StepGate gate;
    std::atomic<bool> silent{false};
    std::atomic<uint64_t> last_position{0};
    const ToyGradientSource::Hook hold = gate.HookAt(7);
    TestCloneOptions fenced_options = {.worker_id = 1, .num_replicas = 2};
    fenced_options.hook = [&silent](const MessageInfo& message) {
      CallFault fault;
      fault.drop_request = silent.load() && message.method == "Heartbeat";
      return fault;
    };
    fenced_options.gradient_hook = [&](uint64_t position, uint32_t replica, GradientResult* result,
                                       absl::Span<float> gradient) {
      if (position == 7) silent.store(true);
      hold(position, replica, result, gradient);
      last_position.store(position);
    };
    TestCloneOptions other_options = {.worker_id = 0, .num_replicas = 2};
    other_options.gradient_hook = [&server](uint64_t position, uint32_t, GradientResult*,
                                            absl::Span<float>) {
      if (position < 12) return;
      // Leaves the last steps for the time when the other clone is back.
      server.Await([](const auto& status) { return status.clones(1).alive(); });
    };
    TestClone fenced(&server, fenced_options);
    TestClone other(&server, other_options);
    ASSERT_TRUE(gate.AwaitReached());
    EXPECT_TRUE(server.Await([](const auto& status) { return status.version() >= 10; }));
    silent.store(false);
    gate.Open();
    const absl::Status end = server.WaitAndClose();
    EXPECT_TRUE(end.ok()) << end;
    EXPECT_TRUE(fenced.Join().ok());
    EXPECT_TRUE(other.Join().ok());
    EXPECT_GT(last_position.load(), 10) << "the fenced clone must contribute again";
    EXPECT_EQ(server.Checkpointed(kRecoverySteps), calm) << tasks << " tasks";
  }
}

// A clock that stands still, so that the clone's timeout for a silent server does not depend on the
// speed of this machine.
class StandingClock final : public Clock {
 public:
  absl::Duration Now() const override { return absl::Seconds(1000); }
  void Sleep(absl::Duration duration) override {
    absl::SleepFor(std::min(duration, absl::Milliseconds(5)));
  }
};

// The last step is applied, but the clone does not know that it is published when the server dies
// and returns with an older checkpoint.
TEST(CloneRecoveryTest, TrainsAgainAfterARollbackOfTheLastSteps) {
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
    if (position + 1 == kRecoverySteps) ++last_positions;
  };
  TestClone clone(&server, options);
  ASSERT_TRUE(server.WaitForEnd().ok());
  server.Kill();
  const std::string newest = server.train_dir() + "/" + CheckpointName(kRecoverySteps);
  ASSERT_TRUE(RemoveRecursively(server.files(), newest).ok());
  ASSERT_TRUE(server.Start().ok());
  // Usually step 15, or one of the next if the snapshot began late.
  ASSERT_TRUE(server.Await([](const auto& status) { return status.version() < kRecoverySteps; }));
  heartbeats_held.store(false);
  const absl::Status end = server.WaitAndClose();
  EXPECT_TRUE(end.ok()) << end;
  const absl::Status trained = clone.Join();
  EXPECT_TRUE(trained.ok()) << trained;
  EXPECT_EQ(last_positions.load(), 2);
  EXPECT_EQ(server.Checkpointed(kRecoverySteps), calm);
}

}  // namespace
}  // namespace pushpull
