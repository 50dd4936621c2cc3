// Tests the calls of administrators to a whole job.
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/wire/error_detail.h"
#include "ps_server/runtime/server_core.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/test_folder.h"

namespace pushpull {
namespace {

constexpr absl::Duration kOperationTimeout = absl::Seconds(30);
constexpr uint64_t kManySteps = 200;

// Makes steps so slow that an administrator's call arrives between them.
void Slowly(uint64_t, uint32_t, GradientResult*, absl::Span<float>) {
  absl::SleepFor(absl::Milliseconds(1));
}

TestServerOptions Options(bool sync = true, int tasks = 1, uint64_t num_steps = kManySteps) {
  TestServerOptions options;
  options.train_config = absl::StrCat("num_steps: ", num_steps, " save_checkpoints_secs: 1000");
  options.sync = sync;
  options.tasks = tasks;
  return options;
}

std::vector<std::unique_ptr<TestClone>> StartClones(TestServer* server, uint32_t count,
                                                    ToyGradientSource::Hook hook = Slowly) {
  std::vector<std::unique_ptr<TestClone>> clones;
  for (uint32_t k = 0; k < count; ++k) {
    TestCloneOptions options;
    options.worker_id = k;
    options.num_replicas = count;
    options.gradient_hook = hook;
    clones.push_back(std::make_unique<TestClone>(server, options));
  }
  return clones;
}

bool AwaitVersion(TestServer* server, uint64_t version) {
  return server->Await([version](const auto& status) { return status.version() >= version; });
}

absl::StatusOr<ps::EvictReply> Evict(TestServer* server, uint32_t worker,
                                     const std::string& reason) {
  ps::EvictRequest request;
  request.set_worker_id(worker);
  request.set_reason(reason);
  return server->MakeClient(0)->Evict(request, kOperationTimeout);
}

void ExpectEvicted(const absl::Status& status, const std::string& reason) {
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::EVICTED);
  EXPECT_TRUE(absl::StrContains(status.message(), reason)) << status;
}

TEST(AdministratorsTest, TheCheckpointIsOnDiskWhenTheCallReturns) {
  for (const int tasks : {1, 2}) {
    TestFolder folder;
    TestServer server(folder, Options(/*sync=*/true, tasks));
    ASSERT_TRUE(server.Start().ok());
    auto clones = StartClones(&server, 2);
    ASSERT_TRUE(AwaitVersion(&server, 5));
    const uint64_t before = server.core().Status().version();
    // Every message is delivered twice.
    const auto client = server.MakeClient(0, [](const MessageInfo& message) {
      EXPECT_EQ(message.method, "Checkpoint");
      CallFault fault;
      fault.duplicates = 1;
      return fault;
    });
    const auto reply = client->Checkpoint({}, kOperationTimeout);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_GE(reply->step(), before);
    EXPECT_FALSE(server.Checkpointed(reply->step()).empty());
    const ps::StatusReply status = server.core().Status();
    EXPECT_GE(status.durable_step(), reply->step());
    EXPECT_GE(status.checkpoints(), 1u);
    EXPECT_GE(status.seconds_since_checkpoint(), 0);
    EXPECT_GT(status.last_checkpoint_seconds(), 0);
    EXPECT_TRUE(server.WaitAndClose().ok());
    for (const auto& clone : clones) EXPECT_TRUE(clone->Join().ok());
  }
}

TEST(AdministratorsTest, AnEvictedCloneEndsAndTheOthersMakeTheSameBits) {
  std::vector<float> calm;
  for (const bool evict : {false, true}) {
    for (const int tasks : {1, 2}) {
      TestFolder folder;
      TestServer server(folder, Options(/*sync=*/true, tasks));
      ASSERT_TRUE(server.Start().ok());
      auto clones = StartClones(&server, 3);
      if (evict) {
        ASSERT_TRUE(AwaitVersion(&server, 5));
        const auto reply = Evict(&server, 1, "its memory is bad");
        ASSERT_TRUE(reply.ok()) << reply.status();
        ASSERT_EQ(reply->replicas_size(), 1);
        EXPECT_EQ(reply->replicas(0), 1u);
        ExpectEvicted(clones[1]->Join(), "its memory is bad");
        EXPECT_LT(server.core().Status().version(), kManySteps)
            << "the evicted clone must end before the job";
        TestClone again(&server, {.worker_id = 1, .num_replicas = 3});
        ExpectEvicted(again.Join(), "its memory is bad");
      }
      const auto last_step_comes = [](const auto& status) {
        return status.version() == kManySteps;
      };
      EXPECT_TRUE(server.Await(last_step_comes));
      const absl::Time trained = absl::Now();
      const absl::Status end = server.WaitAndClose();
      EXPECT_TRUE(end.ok()) << end;
      EXPECT_LT(absl::Now() - trained, TestServerOptions().lease)
          << "nobody waits for an evicted clone";
      for (const uint32_t k : {0, 1, 2}) {
        if (!evict || k != 1) {
          EXPECT_TRUE(clones[k]->Join().ok()) << k;
        }
      }
      const std::vector<float> state = server.Checkpointed(kManySteps);
      ASSERT_FALSE(state.empty());
      if (calm.empty()) calm = state;
      EXPECT_EQ(state, calm) << "evict " << evict << ", tasks " << tasks;
    }
  }
}

TEST(AdministratorsTest, AnAsynchronousCloneTakesOverTheReplicaOfAnEvictedOne) {
  for (const int tasks : {1, 2}) {
    TestFolder folder;
    // The job lasts some seconds, because the replica moves with a heartbeat.
    TestServer server(folder, Options(/*sync=*/false, tasks, 500));
    ASSERT_TRUE(server.Start().ok());
    absl::Mutex mutex;
    std::vector<uint32_t> replicas;
    auto clones = StartClones(&server, 2,
                              [&](uint64_t, uint32_t replica, GradientResult*, absl::Span<float>) {
                                absl::SleepFor(absl::Milliseconds(5));
                                absl::MutexLock lock(&mutex);
                                replicas.push_back(replica);
                              });
    ASSERT_TRUE(server.Await([](const auto& status) {
      return status.clones_size() == 2 && status.clones(1).contributions() > 0;
    }));
    EXPECT_TRUE(Evict(&server, 1, "slow").ok());
    ExpectEvicted(clones[1]->Join(), "slow");
    size_t before;
    {
      absl::MutexLock lock(&mutex);
      before = replicas.size();
    }
    const absl::Status end = server.WaitAndClose();
    EXPECT_TRUE(end.ok()) << end;
    EXPECT_TRUE(clones[0]->Join().ok());
    const std::set<uint32_t> after(replicas.begin() + static_cast<int64_t>(before), replicas.end());
    EXPECT_EQ(after, (std::set<uint32_t>{0, 1}))
        << "clone 0 must train on the data of both replicas";
  }
}

TEST(AdministratorsTest, Task0RefusesThePushOfAnEvictedClone) {
  TestFolder folder;
  TestServer server(folder, Options(/*sync=*/true, 2));
  ASSERT_TRUE(server.Start().ok());
  auto clones = StartClones(&server, 2);
  ASSERT_TRUE(AwaitVersion(&server, 1));
  EXPECT_TRUE(Evict(&server, 1, "").ok());
  ps::PushChunk last;
  last.mutable_key()->set_worker_id(1);
  absl::Status refusal;
  server.core().handler(0)->FinishPush(
      last, [&](absl::StatusOr<ps::PushReply> reply) { refusal = reply.status(); });
  ExpectEvicted(refusal, "clone 1 of 2");
  EXPECT_TRUE(server.WaitAndClose().ok());
}

TEST(AdministratorsTest, DrainByCallLosesNoAppliedStep) {
  for (const bool sync : {true, false}) {
    TestFolder folder;
    TestServer server(folder, Options(sync));
    ASSERT_TRUE(server.Start().ok());
    auto clones = StartClones(&server, 2);
    ASSERT_TRUE(AwaitVersion(&server, 5));
    EXPECT_FALSE(server.core().end_wanted());
    const auto reply = server.MakeClient(0)->Drain({}, kOperationTimeout);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_GE(reply->version(), 5u);
    EXPECT_TRUE(server.core().end_wanted());
    EXPECT_TRUE(absl::IsCancelled(server.WaitForEnd()));
    const ps::StatusReply last = server.core().Status();
    EXPECT_GE(last.version(), reply->version());
    EXPECT_EQ(last.durable_step(), last.version());
    EXPECT_TRUE(absl::IsCancelled(server.WaitAndClose()));
    EXPECT_FALSE(server.Checkpointed(last.version()).empty());
    ASSERT_TRUE(server.Start().ok());
    ASSERT_TRUE(server.Await([](const auto& status) { return status.epoch() >= 2; }));
    EXPECT_TRUE(AwaitVersion(&server, last.version() + 1))
        << "the clones must continue from the drained version";
    EXPECT_EQ(server.core().Status().rolled_back_steps(), 0u);
    EXPECT_TRUE(server.WaitAndClose().ok());
    for (const auto& clone : clones) EXPECT_EQ(clone->Join(), absl::OkStatus());
  }
}

// Large variables are restored for seconds.
TEST(AdministratorsTest, DrainByCallEndsARestore) {
  TestFolder folder;
  PosixFileSystem files;
  SteadyClock clock;
  absl::Notification restoring, drained;
  std::atomic<bool> restored{false};
  ServerCoreOptions options;
  options.train_dir = folder.path() + "/train";
  options.may_restore = [&] {
    restoring.Notify();
    drained.WaitForNotification();
    return absl::OkStatus();
  };
  options.on_restored = [&] { restored = true; };
  auto core =
      ServerCore::Open(JobSpec::Create(MakeTinyConfig(""), true, 1), options, &files, &clock);
  ASSERT_TRUE(core.ok()) << core.status();
  (*core)->Start({"task 0"}, {}, [] {});
  restoring.WaitForNotification();
  (*core)->handler(0)->Drain({}, [](const auto& reply) { EXPECT_TRUE(reply.ok()); });
  const absl::Status end = (*core)->WaitForEnd(kOperationTimeout).value_or(absl::OkStatus());
  EXPECT_TRUE(absl::IsCancelled(end)) << end;
  drained.Notify();
  (*core)->Close();
  EXPECT_FALSE(restored) << "the process had to wait for the whole restore";
}

TEST(AdministratorsTest, OnlyTheCoordinatorTakesAdministratorsCalls) {
  TestFolder folder;
  TestServer server(folder, Options(/*sync=*/true, 2));
  ASSERT_TRUE(server.Start().ok());
  const auto client = server.MakeClient(1);
  for (const absl::Status& status : {client->Checkpoint({}, kOperationTimeout).status(),
                                     client->Drain({}, kOperationTimeout).status(),
                                     client->Evict({}, kOperationTimeout).status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "task 0")) << status;
  }
}

}  // namespace
}  // namespace pushpull
