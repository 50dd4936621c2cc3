// Tests when a server removes old checkpoints.
#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_reader.h"
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

// Reading the newest checkpoint back could take longer than a server has to end. The next server
// does it before it has saved anything itself: it may drain before its first checkpoint too.
TEST(OldCheckpointsTest, ADrainLeavesOldCheckpointsToTheNextServer) {
  TestFolder folder;
  TestServer server(folder, Endless("save_checkpoints_steps: 1000000 max_to_keep: 1"));
  ASSERT_TRUE(server.Start().ok());
  {
    TestClone clone(&server, {});
    EXPECT_TRUE(server.Await([](const auto& status) { return status.version() > 0; }));
    EXPECT_TRUE(server.MakeClient(0)->Checkpoint({}, absl::Seconds(60)).ok());
    const uint64_t saved = server.core().Status().durable_step();
    EXPECT_TRUE(server.Await([&](const auto& status) { return status.version() > saved; }));
    clone.Stop();
    clone.Join().IgnoreError();
  }
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

}  // namespace
}  // namespace pushpull
