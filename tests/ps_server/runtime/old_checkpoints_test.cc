// Tests when a server removes old checkpoints.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/train_dir.h"
#include "common/wire/protocol_version.h"
#include "ps_server/runtime/server_core.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

// Returns the options of a job of one clone that does not end. `train_config` is added to its
// config, and `files` are as in TestServerOptions.
TestServerOptions Endless(const std::string& train_config, FileSystem* files = nullptr) {
  TestServerOptions options;
  options.train_config = "num_steps: 1000000 " + train_config;
  options.num_replicas = 1;
  options.files = files;
  return options;
}

TEST(OldCheckpointsTest, ACheckpointCountsBeforeOldOnesAreRemoved) {
  TestFolder folder;
  PosixFileSystem disk;
  FailingReads hooked(&disk);
  TestServer server(folder, Endless("save_checkpoints_steps: 5", &hooked));
  ASSERT_TRUE(server.Start().ok());
  // The rule for old checkpoints is the first that reads a manifest.
  std::atomic<bool> ended = false;
  std::atomic<bool> counts = false;
  hooked.AtFailure([&] {
    counts = server.Await([](const auto& status) { return status.durable_step() >= 5; });
    ended = true;
  });
  hooked.Fail(FailingReads::What::kOpen, "/MANIFEST.json", absl::OkStatus(), 1);
  TestClone clone(&server, {});
  EXPECT_TRUE(server.Await([&](const auto&) { return ended.load(); }));
  EXPECT_TRUE(counts);
  clone.Stop();
  clone.Join().IgnoreError();
  EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
}

// Trains with one clone, which then leaves, until steps follow a checkpoint.
void TrainPastACheckpoint(TestServer* server) {
  TestClone clone(server, {});
  EXPECT_TRUE(server->Await([](const auto& status) { return status.version() > 0; }));
  EXPECT_TRUE(server->MakeClient(0)->Checkpoint({}, absl::Seconds(60)).ok());
  const uint64_t saved = server->core().Status().durable_step();
  EXPECT_TRUE(server->Await([&](const auto& status) { return status.version() > saved; }));
  clone.Stop();
  clone.Join().IgnoreError();
}

// Reading the newest checkpoint back could take longer than a server has to end. The next server
// does it before it has saved anything itself: it may drain before its first checkpoint too.
TEST(OldCheckpointsTest, ADrainLeavesOldCheckpointsToTheNextServer) {
  TestFolder folder;
  TestServer server(folder, Endless("save_checkpoints_steps: 1000000 max_to_keep: 1"));
  ASSERT_TRUE(server.Start().ok());
  TrainPastACheckpoint(&server);
  const auto number = [&server] {
    return ListCheckpoints(server.files(), server.train_dir())->size();
  };
  EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
  EXPECT_EQ(number(), 2u);
  ASSERT_TRUE(server.Start().ok());
  EXPECT_TRUE(server.Await([&](const auto&) { return number() == 1; }));
}

// The last checkpoint waits for the thread that reads.
TEST(OldCheckpointsTest, ADrainEndsTheReadingBack) {
  TestFolder folder;
  PosixFileSystem disk;
  FailingReads hooked(&disk);
  TestServer server(folder, Endless("save_checkpoints_steps: 1000000 max_to_keep: 1", &hooked));
  hooked.AtFailure([&] { server.core().handler(0)->Drain({}, [](const auto&) {}); });
  hooked.Fail(FailingReads::What::kRead, ".safetensors", absl::OkStatus(), 1);
  ASSERT_TRUE(server.Start().ok());
  TestClone clone(&server, {});
  EXPECT_TRUE(server.Await([](const auto& status) { return status.version() > 0; }));
  EXPECT_TRUE(server.MakeClient(0)->Checkpoint({}, absl::Seconds(60)).ok());
  const uint64_t first = server.core().Status().durable_step();
  EXPECT_TRUE(server.Await([&](const auto& status) { return status.version() > first; }));
  EXPECT_TRUE(server.MakeClient(0)->Checkpoint({}, absl::Seconds(60)).ok());
  EXPECT_TRUE(absl::IsCancelled(server.WaitAndClose()));
  clone.Stop();
  clone.Join().IgnoreError();
  EXPECT_EQ(hooked.failed(), 1);
  EXPECT_EQ(ListCheckpoints(disk, server.train_dir())->front(), first);
}

// Shard 1 of a job, in another process that is restarted when the test says so.
class RestartedPeer final : public ShardPeer {
 public:
  explicit RestartedPeer(const std::string& run_id) : run_id_(run_id) {}
  void Restart() { ++boot_id_; }
  // Blocks until the coordinator knows of the restart.
  void AwaitNoticed() { noticed_.WaitForNotification(); }

  void Call(const ShardCall& call, Done done) override {
    if (const auto* const restore = std::get_if<shard_call::Restore>(&call)) {
      epoch_ = restore->request.epoch();
      return done(ShardReply(ps::RestoreReply()));
    }
    ps::ShardStateReply state;
    state.set_run_id(run_id_);
    state.set_job_run_id(run_id_);
    state.set_shard(1);
    state.set_protocol_version(kProtocolVersion);
    const uint64_t boot_id = boot_id_;
    state.set_boot_id(boot_id);
    state.set_epoch(epoch_);
    done(ShardReply(state));
    if (boot_id > 1 && !noticed_.HasBeenNotified()) noticed_.Notify();
  }
  void Close(const absl::Status&) override {}
  void Stop() override {}
  absl::Status EndTask(const ps::EndTaskRequest&) override { return absl::OkStatus(); }

 private:
  const std::string run_id_;
  std::atomic<uint64_t> boot_id_ = 1;
  std::atomic<uint64_t> epoch_ = 0;
  absl::Notification noticed_;
};

// The next epoch is written by the thread that reads.
TEST(OldCheckpointsTest, ARestartedTaskEndsTheReadingBack) {
  TestFolder folder;
  TestServerOptions options = Endless("save_checkpoints_steps: 1000000 max_to_keep: 1");
  options.tasks = 2;
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  TrainPastACheckpoint(&server);
  EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
  ASSERT_EQ(ListCheckpoints(server.files(), server.train_dir())->size(), 2u);

  const std::string run_id = ReadRunId(server.files(), server.train_dir())->value();
  auto peer = std::make_unique<RestartedPeer>(absl::HexStringToBytes(run_id));
  FailingReads hooked(&server.files());
  hooked.AtFailure([peer = peer.get()] {
    peer->Restart();
    peer->AwaitNoticed();
  });
  ServerCoreOptions core_options;
  core_options.train_dir = server.train_dir();
  // What is read once shard 0 is restored, is read for the rule for old checkpoints.
  core_options.on_restored = [&hooked] {
    hooked.Fail(FailingReads::What::kRead, ".safetensors", absl::OkStatus(), 1);
  };
  SteadyClock clock;
  auto core = ServerCore::Open(server.job(), core_options, &hooked, &clock);
  ASSERT_TRUE(core.ok()) << core.status();
  std::vector<std::unique_ptr<ShardPeer>> peers;
  peers.push_back(std::move(peer));
  std::atomic<int> times_serving = 0;
  (*core)->Start({"task 0", "task 1"}, std::move(peers), [&] { ++times_serving; });
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (times_serving < 2 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_EQ(times_serving, 2);
  EXPECT_EQ(ListCheckpoints(server.files(), server.train_dir())->size(), 2u)
      << "the new epoch has waited until the newest checkpoint was read";
}

}  // namespace
}  // namespace pushpull
