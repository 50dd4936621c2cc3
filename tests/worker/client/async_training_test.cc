// Asynchronous training with clones and server in one process.
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/testkit/job/step_gate.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

TestServerOptions AsyncOptions(const std::string& train_config, int tasks = 1) {
  TestServerOptions options;
  options.train_config = train_config;
  options.sync = false;
  options.tasks = tasks;
  return options;
}

// Expects `total` accepted pushes in all. Every accepted batch was accepted once, and the accepted
// batches of each replica have consecutive positions.
void ExpectEachPositionOnce(const TestServer& server, int total) {
  std::map<uint32_t, uint64_t> next;
  int accepted = 0;
  for (const auto& [place, count] : server.audit().AcceptedPositions()) {
    const auto& [replica, position] = place;
    EXPECT_EQ(count, 1) << "replica " << replica << ", position " << position;
    EXPECT_EQ(position, next[replica]) << "replica " << replica;
    next[replica] = position + 1;
    accepted += count;
  }
  EXPECT_EQ(accepted, total);
}

TEST(AsyncTrainingTest, EveryPushIsOneStep) {
  for (int tasks : {1, 2}) {
    TestFolder folder;
    TestServer server(folder, AsyncOptions("num_steps: 40", tasks));
    ASSERT_TRUE(server.Start().ok());
    TestCloneOptions options;
    options.num_replicas = 3;
    std::vector<std::unique_ptr<TestClone>> clones;
    for (uint32_t k = 0; k < 3; ++k) {
      options.worker_id = k;
      clones.push_back(std::make_unique<TestClone>(&server, options));
    }
    const absl::Status end = server.WaitForEnd();
    EXPECT_TRUE(end.ok()) << end;
    const ps::StatusReply status = server.core().Status();
    EXPECT_EQ(status.version(), 40);
    uint64_t contributions = 0;
    for (const ps::CloneStatus& clone : status.clones()) contributions += clone.contributions();
    EXPECT_EQ(contributions, 40) << "every step must consist of exactly one push";
    EXPECT_TRUE(server.WaitAndClose().ok());
    for (const auto& clone : clones) {
      const absl::Status ended = clone->Join();
      EXPECT_TRUE(ended.ok()) << ended;
    }
    EXPECT_FALSE(server.Checkpointed(40).empty());
    ExpectEachPositionOnce(server, 40);
  }
}

// The coordinator adds up the norms that the shards measure, so that each shard clips by the norm
// of a whole variable or of the whole gradient. With one clone the order of pushes is fixed.
TEST(AsyncTrainingTest, ClippingDoesNotDependOnTheNumberOfTasks) {
  const std::vector<float> unclipped = TrainedState(1, AsyncOptions("num_steps: 20"));
  ASSERT_FALSE(unclipped.empty());
  for (const char* clipping :
       {"gradient_clipping_by_norm: 0.5", "gradient_clipping_by_global_norm: 0.5"}) {
    const std::string config = absl::StrCat("num_steps: 20 ", clipping);
    const std::vector<float> one = TrainedState(1, AsyncOptions(config));
    ASSERT_FALSE(one.empty());
    EXPECT_NE(one, unclipped) << clipping << " should clip something";
    for (const int tasks : {2, 3}) {
      EXPECT_EQ(TrainedState(1, AsyncOptions(config, tasks)), one) << clipping << ", " << tasks;
    }
  }
}

TEST(AsyncTrainingTest, LostAndDuplicatedMessagesApplyNothingTwice) {
  // With one clone the order of pushes is fixed, so the result must equal that of an undisturbed
  // run bit for bit.
  std::vector<float> calm;
  for (const bool trouble : {false, true}) {
    TestFolder folder;
    TestServer server(folder, AsyncOptions("num_steps: 30"));
    ASSERT_TRUE(server.Start().ok());
    TestCloneOptions options;
    if (trouble) {
      options.hook = [](const MessageInfo& message) {
        CallFault fault;
        fault.drop_request = message.sequence % 13 == 5;
        fault.drop_reply = message.sequence % 11 == 7;
        fault.duplicates = message.sequence % 5 == 2 ? 1 : 0;
        return fault;
      };
    }
    TestClone clone(&server, options);
    const absl::Status end = server.WaitAndClose();
    ASSERT_TRUE(end.ok()) << end;
    const absl::Status ended = clone.Join();
    EXPECT_TRUE(ended.ok()) << ended;
    const std::vector<float> state = server.Checkpointed(30);
    ASSERT_FALSE(state.empty());
    if (!trouble) {
      calm = state;
    } else {
      EXPECT_EQ(state, calm);
    }
  }
}

TEST(AsyncTrainingTest, DataContinueAfterTheServerRestarts) {
  TestFolder folder;
  TestServerOptions server_options = AsyncOptions("num_steps: 30");
  server_options.mapped = true;
  TestServer server(folder, server_options);
  ASSERT_TRUE(server.Start().ok());
  absl::Mutex mutex;
  std::vector<uint64_t> positions;
  TestCloneOptions options;
  options.gradient_hook = [&](uint64_t position, uint32_t, GradientResult*, absl::Span<float>) {
    absl::MutexLock lock(&mutex);
    positions.push_back(position);
  };
  TestClone clone(&server, options);
  ASSERT_TRUE(server.Await([](const auto& status) { return status.version() >= 10; }));
  server.Kill();
  ASSERT_TRUE(server.Start().ok());
  const absl::Status end = server.WaitAndClose();
  ASSERT_TRUE(end.ok()) << end;
  EXPECT_TRUE(clone.Join().ok());
  for (size_t i = 1; i < positions.size(); ++i) {
    EXPECT_GE(positions[i], positions[i - 1]) << "a batch from before the restart was repeated";
    EXPECT_LE(positions[i], positions[i - 1] + 1) << "a batch was skipped";
  }
}

// Drops the reply to push number `push` and then every message until Mend.
class CutAfterPush {
 public:
  explicit CutAfterPush(int push) : push_(push) {}

  FaultHook hook() {
    return [this](const MessageInfo& message) {
      absl::MutexLock lock(&mutex_);
      CallFault fault;
      fault.drop_request = cut_;
      if (cut_ || message.method != "FinishPush" || ++pushes_ != push_) return fault;
      fault.drop_reply = cut_ = true;
      return fault;
    };
  }
  void Mend() {
    absl::MutexLock lock(&mutex_);
    cut_ = false;
  }

 private:
  const int push_;
  absl::Mutex mutex_;
  int pushes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cut_ ABSL_GUARDED_BY(mutex_) = false;
};

// With one clone the order of pushes is fixed, so the result equals that of an undisturbed run bit
// for bit exactly if each batch counts once.
TEST(AsyncTrainingTest, EachBatchCountsOnceIfAReplyIsLostAndTheServerRestarts) {
  std::vector<float> calm;
  for (const bool trouble : {false, true}) {
    for (const bool mapped : {true, false}) {
      if (!trouble && !mapped) continue;
      TestFolder folder;
      // A job that has no mapped state returns to its checkpoint, and its clone to the matching
      // data position. The checkpoint is of step 10, or of a later one on a busy machine.
      TestServerOptions server_options = AsyncOptions("num_steps: 30 save_checkpoints_steps: 10");
      server_options.mapped = mapped;
      TestServer server(folder, server_options);
      ASSERT_TRUE(server.Start().ok());
      CutAfterPush cut(15);
      TestClone clone(&server, {.hook = trouble ? cut.hook() : nullptr});
      if (trouble) {
        ASSERT_TRUE(server.Await([](const auto& status) {
          return status.version() == 15 && status.durable_step() >= 10;
        }));
        const uint64_t resumes_at = mapped ? 15 : server.core().Status().durable_step();
        server.Kill();
        ASSERT_TRUE(server.Start().ok());
        ASSERT_TRUE(server.Await(
            [resumes_at](const auto& status) { return status.version() == resumes_at; }));
        cut.Mend();
      }
      const absl::Status end = server.WaitAndClose();
      ASSERT_TRUE(end.ok()) << end;
      EXPECT_TRUE(clone.Join().ok());
      const std::vector<float> state = server.Checkpointed(30);
      ASSERT_FALSE(state.empty());
      if (!trouble) {
        calm = state;
      } else {
        EXPECT_EQ(state, calm) << "mapped " << mapped;
      }
    }
  }
}

// A new process of the same clone does not know which batches were trained before.
TEST(AsyncTrainingTest, ARestartedCloneContinuesWithItsNextBatch) {
  const std::vector<float> calm = TrainedState(1, AsyncOptions("num_steps: 30"));
  ASSERT_FALSE(calm.empty());
  TestFolder folder;
  TestServer server(folder, AsyncOptions("num_steps: 30"));
  ASSERT_TRUE(server.Start().ok());
  {
    StepGate gate;
    TestClone leaves(&server, {.gradient_hook = gate.HookAt(10)});
    EXPECT_TRUE(gate.AwaitReached());
    leaves.Stop();
    gate.Open();
    EXPECT_TRUE(absl::IsCancelled(leaves.Join()));
  }
  const uint64_t version = server.core().Status().version();
  std::atomic<uint64_t> first_position{UINT64_MAX};
  TestCloneOptions options;
  options.gradient_hook = [&](uint64_t position, uint32_t, GradientResult*, absl::Span<float>) {
    uint64_t none = UINT64_MAX;
    first_position.compare_exchange_strong(none, position);
  };
  TestClone returns(&server, options);
  const absl::Status end = server.WaitAndClose();
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_TRUE(returns.Join().ok());
  EXPECT_EQ(first_position.load(), version) << "every version is one batch of the only replica";
  EXPECT_EQ(server.Checkpointed(30), calm);
  ExpectEachPositionOnce(server, 30);
}

TEST(AsyncTrainingTest, AStalePushIsRefusedAndTheCloneContinues) {
  TestFolder folder;
  TestServer server(folder, AsyncOptions("num_steps: 30 max_staleness: 2"));
  ASSERT_TRUE(server.Start().ok());
  // The slow clone holds its third batch until the other clone is five steps ahead.
  TestCloneOptions slow;
  slow.worker_id = 1;
  slow.num_replicas = 2;
  int computed = 0;
  std::vector<uint64_t> positions;
  slow.gradient_hook = [&](uint64_t position, uint32_t, GradientResult*, absl::Span<float>) {
    positions.push_back(position);
    if (++computed != 3) return;
    const uint64_t version = server.core().Status().version();
    server.Await([version](const auto& status) {
      return status.version() >= std::min<uint64_t>(version + 5, 25);
    });
  };
  TestClone behind(&server, slow);
  ASSERT_TRUE(server.Await([](const auto& status) { return status.version() >= 1; }));
  TestCloneOptions fast;
  fast.num_replicas = 2;
  fast.gradient_hook = [&](uint64_t, uint32_t, GradientResult*, absl::Span<float>) {
    // Leaves steps for the slow clone after its push was refused.
    server.Await([](const auto& status) {
      return status.version() < 26 || status.dropped_contributions() > 0;
    });
  };
  TestClone ahead(&server, fast);
  const absl::Status end = server.WaitForEnd();
  ASSERT_TRUE(end.ok()) << end;
  EXPECT_GE(server.core().Status().dropped_contributions(), 1);
  EXPECT_TRUE(server.WaitAndClose().ok());
  EXPECT_TRUE(behind.Join().ok());
  EXPECT_TRUE(ahead.Join().ok());
  uint64_t worst = 0;
  for (const CloneReport& report : ahead.reports()) worst = std::max(worst, report.staleness);
  for (const CloneReport& report : behind.reports()) worst = std::max(worst, report.staleness);
  EXPECT_LE(worst, 2);
  ASSERT_GE(positions.size(), 4);
  EXPECT_EQ(positions[3], positions[2])
      << "the refused batch must be computed again with new weights";
  ExpectEachPositionOnce(server, 30);
}

}  // namespace
}  // namespace pushpull
