// Clones and server in one process: which factors may change the result of synchronous training.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/base/random.h"
#include "kernels/bfloat16.h"
#include "tests/testkit/job/step_gate.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

constexpr uint64_t kSyncSteps = 20;

TEST(SyncTrainingTest, WeightsDoNotDependOnTheNumberOfClones) {
  const std::vector<float> one = TrainedState(1);
  ASSERT_FALSE(one.empty());
  for (uint32_t clones : {2u, 3u}) {
    const std::vector<float> many = TrainedState(clones);
    ASSERT_EQ(many.size(), one.size());
    double worst = 0.0;
    for (size_t i = 0; i < one.size(); ++i) {
      const double scale = std::max(1e-2, std::abs(static_cast<double>(one[i])));
      worst = std::max(worst, std::abs(static_cast<double>(many[i]) - one[i]) / scale);
    }
    EXPECT_LE(worst, 1e-5) << clones << " clones compared with one";
    EXPECT_NE(many, one) << "another order of summation should differ somewhere";
  }
}

TEST(SyncTrainingTest, SameSeedGivesTheSameBits) {
  const std::vector<float> first = TrainedState(3);
  ASSERT_FALSE(first.empty());
  EXPECT_EQ(TrainedState(3), first);
  EXPECT_NE(TrainedState(3, {.train_config = "seed: 7"}), first);
}

TEST(SyncTrainingTest, TheNumberOfShardsDoesNotChangeABit) {
  const std::vector<float> one = TrainedState(2);
  ASSERT_FALSE(one.empty());
  EXPECT_EQ(TrainedState(2, {.tasks = 2}), one);
  EXPECT_EQ(TrainedState(2, {.tasks = 3}), one);
}

TEST(SyncTrainingTest, SeveralChunksPerShardChangeNothing) {
  const std::string few_steps = "num_steps: 20 gradient_clipping_by_norm: 1.0";
  const std::vector<float> one =
      TrainedState(2, {.train_config = few_steps, .large_elements = 300000, .tasks = 1});
  ASSERT_FALSE(one.empty());
  EXPECT_EQ(TrainedState(2, {.train_config = few_steps, .large_elements = 300000, .tasks = 2}),
            one);
}

TEST(SyncTrainingTest, SendingBfloat16EqualsRoundingTheGradient) {
  const std::vector<float> whole = TrainedState(2);
  ASSERT_FALSE(whole.empty());
  TestCloneOptions halves;
  halves.gradient_codec = &Bfloat16Codec();
  TestCloneOptions rounded;
  rounded.gradient_hook = [](uint64_t, uint32_t, GradientResult*, absl::Span<float> gradient) {
    for (float& value : gradient) value = ToFloat(ToBfloat16(value));
  };
  for (int tasks : {1, 2}) {
    const std::vector<float> trained = TrainedState(2, {.tasks = tasks}, halves);
    EXPECT_NE(trained, whole);
    EXPECT_EQ(trained, TrainedState(2, {}, rounded)) << tasks << " tasks";
  }
}

// Drops and duplicates messages by a formula of client, method and number. Counts them in *faults,
// which must outlive the hook.
FaultHook Trouble(uint64_t seed, double rate, std::atomic<int>* faults) {
  return [seed, rate, faults](const MessageInfo& message) {
    CounterRandom random(seed, message.sequence * 16 + message.method.size());
    CallFault fault;
    fault.drop_request = random.NextFloat() < rate;
    fault.drop_reply = random.NextFloat() < rate;
    fault.duplicates = random.NextFloat() < rate ? 1 : 0;
    if (fault.drop_request || fault.drop_reply || fault.duplicates > 0) ++*faults;
    return fault;
  };
}

TEST(SyncTrainingTest, LostAndDuplicatedMessagesChangeNothing) {
  const std::vector<float> calm = TrainedState(2);
  ASSERT_FALSE(calm.empty());
  for (int tasks : {1, 2}) {
    TestCloneOptions clones;
    std::atomic<int> faults = 0;
    clones.hook = Trouble(11 + tasks, 0.08, &faults);
    EXPECT_EQ(TrainedState(2, {.tasks = tasks}, clones), calm) << tasks << " tasks";
    EXPECT_GT(faults.load(), 0);
  }
}

TEST(SyncTrainingTest, ACloneThatStopsDuringAStepAndReturnsChangesNothing) {
  const std::vector<float> calm = TrainedState(2);
  ASSERT_FALSE(calm.empty());
  for (int tasks : {1, 2}) {
    TestFolder folder;
    TestServer server(folder, {.tasks = tasks});
    ASSERT_TRUE(server.Start().ok());
    TestClone stays(&server, {.worker_id = 0, .num_replicas = 2});
    StepGate gate;
    {
      TestClone leaves(&server,
                       {.worker_id = 1, .num_replicas = 2, .gradient_hook = gate.HookAt(7)});
      ASSERT_TRUE(gate.AwaitReached());
      leaves.Stop();
      gate.Open();
      EXPECT_TRUE(absl::IsCancelled(leaves.Join()));
    }
    TestClone returns(&server, {.worker_id = 1, .num_replicas = 2});
    EXPECT_TRUE(server.WaitAndClose().ok());
    EXPECT_TRUE(stays.Join().ok());
    EXPECT_TRUE(returns.Join().ok());
    EXPECT_EQ(server.Checkpointed(kSyncSteps), calm) << tasks << " tasks";
  }
}

TEST(SyncTrainingTest, AnotherCloneTakesOverTheReplica) {
  const std::vector<float> calm = TrainedState(2);
  ASSERT_FALSE(calm.empty());
  EXPECT_EQ(StateAfterTakeover({}, 7), calm);
}

TEST(SyncTrainingTest, AServerKilledDuringAStepChangesNothing) {
  const std::vector<float> calm = TrainedState(2);
  ASSERT_FALSE(calm.empty());
  for (const bool mapped : {true, false}) {
    for (int tasks : {1, 2}) {
      TestFolder folder;
      TestServer server(
          folder, {.train_config = "save_checkpoints_steps: 5", .tasks = tasks, .mapped = mapped});
      ASSERT_TRUE(server.Start().ok());
      TestClone first(&server, {.worker_id = 0, .num_replicas = 2});
      TestClone second(&server, {.worker_id = 1, .num_replicas = 2});
      for (uint64_t at : {3, 8, 13}) {
        ASSERT_TRUE(server.Await([at](const auto& status) { return status.version() >= at; }));
        server.Kill();
        const absl::Status started = server.Start();
        ASSERT_TRUE(started.ok()) << started;
      }
      const absl::Status end = server.WaitAndClose();
      EXPECT_TRUE(end.ok()) << end;
      EXPECT_TRUE(first.Join().ok());
      EXPECT_TRUE(second.Join().ok());
      EXPECT_EQ(server.Checkpointed(kSyncSteps), calm) << tasks << " tasks, mapped " << mapped;
    }
  }
}

// The late clone is told VERSION_GONE, because the others have made two versions without it.
TEST(SyncTrainingTest, ALateCloneContinuesWhereTheOthersAre) {
  TestFolder folder;
  TestServer server(folder, {.train_config = "step_deadline_secs: 1 min_contributors: 1"});
  ASSERT_TRUE(server.Start().ok());
  StepGate gate;
  // After the late clone was late once, steps no longer wait for it. The prompt clone leaves it
  // some steps.
  const auto wait_for_late = [&](uint64_t position, uint32_t, GradientResult*, absl::Span<float>) {
    if (position < 12) return;
    server.Await([](const auto& status) { return status.clones(1).contributions() > 5; });
  };
  TestClone prompt(&server, {.worker_id = 0, .num_replicas = 2, .gradient_hook = wait_for_late});
  TestClone late(&server, {.worker_id = 1, .num_replicas = 2, .gradient_hook = gate.HookAt(5)});
  ASSERT_TRUE(gate.AwaitReached());
  ASSERT_TRUE(server.Await([](const auto& status) { return status.version() >= 8; }));
  gate.Open();
  const absl::Status end = server.WaitForEnd();
  EXPECT_TRUE(end.ok()) << end;
  const ps::StatusReply status = server.core().Status();
  EXPECT_GE(status.dropped_contributions(), 1);
  ASSERT_EQ(status.clones_size(), 2);
  EXPECT_GT(status.clones(1).contributions(), 5) << "the late clone must contribute again";
  EXPECT_TRUE(server.WaitAndClose().ok());
  EXPECT_TRUE(prompt.Join().ok());
  EXPECT_TRUE(late.Join().ok());
  // An undisturbed job with the same contributions must give the same result. There, the
  // contributions that were late here are made void, which leaves them out.
  TestCloneOptions same;
  same.gradient_hook = [&server](uint64_t position, uint32_t replica, GradientResult* result,
                                 absl::Span<float>) {
    if (server.audit().AcceptedReplicas(position + 1).count(replica) == 0) result->loss = NAN;
  };
  EXPECT_EQ(server.Checkpointed(kSyncSteps),
            TrainedState(2, {.train_config = "non_finite_policy: SKIP"}, same));
}

// Saves one round trip between the last gradient and the next weights.
TEST(SyncTrainingTest, PullsAVersionBeforeItsPushIsAcknowledged) {
  TestFolder folder;
  TestServer server(folder, {});
  ASSERT_TRUE(server.Start().ok());
  std::atomic<int> pulls{0}, pushes{0}, too_late{0};
  TestCloneOptions options;
  options.hook = [&](const MessageInfo& message) {
    if (message.method == "Pull") ++pulls;
    if (message.method != "FinishPush") return CallFault();
    const int wanted = ++pushes + 1;              // the first pull brought the initial weights
    if (too_late.load() > 0) return CallFault();  // the test has failed and need not wait again
    const absl::Time patience = absl::Now() + absl::Seconds(5);
    while (pulls.load() < wanted && absl::Now() < patience) absl::SleepFor(absl::Microseconds(200));
    if (pulls.load() < wanted) ++too_late;
    return CallFault();
  };
  TestClone clone(&server, options);
  EXPECT_EQ(server.WaitAndClose(), absl::OkStatus());
  EXPECT_EQ(clone.Join(), absl::OkStatus());
  EXPECT_EQ(pushes.load(), static_cast<int>(kSyncSteps));
  EXPECT_EQ(too_late.load(), 0);
}

TEST(SyncTrainingTest, AServerThatIsGoneAfterTheLastStepHasNotConfirmedTheEnd) {
  TestFolder folder;
  TestServer server(folder, {});
  ASSERT_TRUE(server.Start().ok());
  // The clone learns of the last version but not that it is published.
  std::atomic<bool> heartbeats_lost{false};
  TestCloneOptions options;
  options.peer_deadline = absl::Seconds(1);
  options.hook = [&heartbeats_lost](const MessageInfo& message) {
    CallFault fault;
    fault.drop_request = heartbeats_lost.load() && message.method == "Heartbeat";
    return fault;
  };
  options.gradient_hook = [&](uint64_t position, uint32_t, GradientResult*, absl::Span<float>) {
    if (position + 1 == kSyncSteps) heartbeats_lost.store(true);
  };
  TestClone clone(&server, options);
  ASSERT_TRUE(server.WaitForEnd().ok());
  server.Kill();
  const absl::Status end = clone.Join();
  EXPECT_TRUE(IsPeerLost(end)) << end;
  EXPECT_EQ(server.Checkpointed(kSyncSteps), TrainedState(1));
}

// The server waits for the clone that computes a long step, and tells so to all clones.
TEST(SyncTrainingTest, ASpareReportsThatItIsOneWhateverTheStepWaitsFor) {
  TestFolder folder;
  TestServer server(folder, {.num_replicas = 1});
  ASSERT_TRUE(server.Start().ok());
  StepGate gate;
  TestClone trains(&server, {.gradient_hook = gate.HookAt(3)});
  EXPECT_TRUE(gate.AwaitReached());
  TestClone spare(&server, {.worker_id = 1, .peer_name = "spare"});
  EXPECT_TRUE(server.Await(
      [](const auto& status) { return absl::StrContains(status.waiting_for(), "clone 0 of 1"); }));
  const size_t before = spare.reports().size();
  // The spare's own heartbeat has brought that, too, by the third of these reports.
  EXPECT_TRUE(server.Await([&](const auto&) { return spare.reports().size() >= before + 3; }));
  const std::vector<CloneReport> reports = spare.reports();
  gate.Open();
  EXPECT_TRUE(server.WaitAndClose().ok());
  EXPECT_TRUE(trains.Join().ok());
  EXPECT_TRUE(spare.Join().ok());
  for (const CloneReport& report : reports) EXPECT_EQ(report.waiting_for, kWaitOfSpare);
}

// While a spare and all other clones were away, a clone came with other data. The server then
// forgets the spare, which would otherwise wait for a replica that it cannot get.
TEST(SyncTrainingTest, ASpareThatTheServerHasForgottenRegistersAgain) {
  TestFolder folder;
  TestServerOptions options;
  options.lease = absl::Milliseconds(300);
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  std::atomic<bool> are_away = false;
  std::atomic<int> registrations = 0;
  StepGate first_gate, second_gate;
  TestClone first(&server, {.hook =
                                [&](const auto&) {
                                  CallFault fault;
                                  fault.drop_request = are_away;
                                  return fault;
                                },
                            .gradient_hook = first_gate.HookAt(3)});
  ASSERT_TRUE(first_gate.AwaitReached());
  TestClone spare(&server, {.worker_id = 1, .peer_name = "spare", .hook = [&](const auto& message) {
                              registrations += message.method == "Register";
                              CallFault fault;
                              fault.drop_request = are_away && message.method == "Heartbeat";
                              return fault;
                            }});
  EXPECT_TRUE(server.Await([&](const auto&) { return registrations == 1; }));
  are_away = true;
  EXPECT_TRUE(server.Await([](const auto& status) {
    return std::none_of(status.clones().begin(), status.clones().end(),
                        [](const auto& clone) { return clone.alive(); });
  }));
  first.Stop();
  first_gate.Open();
  EXPECT_TRUE(absl::IsCancelled(first.Join()));
  TestClone second(&server, {.session = 2,
                             .gradient_hook = second_gate.HookAt(12),
                             .num_images = ToyGradientSource::kNumImages - 1});
  EXPECT_TRUE(second_gate.AwaitReached());
  are_away = false;
  EXPECT_TRUE(server.Await([&](const auto&) { return registrations >= 2; }));
  spare.Stop();
  EXPECT_TRUE(absl::IsCancelled(spare.Join()));
  second_gate.Open();
  EXPECT_TRUE(server.WaitAndClose().ok());
  EXPECT_TRUE(second.Join().ok());
}

}  // namespace
}  // namespace pushpull
