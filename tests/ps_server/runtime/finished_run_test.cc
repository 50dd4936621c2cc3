#include "ps_server/runtime/finished_run.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/fake_clock.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/one_shard_checkpoint.h"

namespace pushpull {
namespace {

constexpr absl::Duration kRunPatience = absl::Seconds(10);

TEST(FinishedRunTest, IsFoundAfterThePatience) {
  TestFolder folder;
  TestServer server(folder, {.tasks = 2});
  ASSERT_TRUE(server.Start().ok());
  FakeClock clock;
  FinishedRun finished(&server.files(), &clock, server.train_dir(), kRunPatience);
  clock.Advance(kRunPatience);
  EXPECT_FALSE(finished.Look(server.job()).has_value()) << "nothing has been trained";
  std::thread training([&] { TrainWithClones(&server, 1); });
  EXPECT_TRUE(server.WaitAndClose().ok());
  training.join();

  EXPECT_FALSE(finished.Look(server.job()).has_value()) << "the next look is not due";
  clock.Advance(kRunPatience);
  const std::optional<EndOfRun> end = finished.Look(server.job());
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->run_id.size(), 16u);
  EXPECT_EQ(end->step, server.job().limits.num_steps);

  JobSpec longer = server.job();
  ++longer.limits.num_steps;
  clock.Advance(kRunPatience);
  EXPECT_FALSE(finished.Look(longer).has_value()) << "the run has been extended";
  JobSpec endless = server.job();
  endless.limits.num_steps = 0;
  clock.Advance(kRunPatience);
  EXPECT_FALSE(finished.Look(endless).has_value());
}

// A task may wait for task 0 for hours, and looks once in the length of a lease.
TEST(FinishedRunTest, ACheckpointThatIsNotTheLastIsNotReadWhole) {
  TestFolder folder;
  TestServer server(folder, {.train_config = "num_steps: 1000000", .tasks = 2});
  ASSERT_TRUE(server.Start().ok());
  TestClone clone(&server, {});
  EXPECT_TRUE(server.Await([](const auto& status) { return status.version() >= 3; }));
  clone.Stop();
  clone.Join().IgnoreError();
  EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
  FailingReads files(&server.files());
  files.Fail(FailingReads::What::kRead, ".safetensors", absl::OkStatus(), 1000);
  FakeClock clock;
  FinishedRun finished(&files, &clock, server.train_dir(), kRunPatience);
  clock.Advance(kRunPatience);
  EXPECT_FALSE(finished.Look(server.job()).has_value());
  EXPECT_EQ(files.failed(), 0) << "parts of the shards' files were read";
}

TEST(FinishedRunTest, TheCheckpointTellsTheNumberOfImages) {
  TestFolder folder;
  TestServer server(folder, {.train_config = "num_steps: 0", .num_epochs = 1, .tasks = 2});
  ASSERT_TRUE(server.Start().ok());
  FakeClock clock;
  FinishedRun finished(&server.files(), &clock, server.train_dir(), kRunPatience);
  std::thread training([&] { TrainWithClones(&server, 1); });
  EXPECT_TRUE(server.WaitAndClose().ok());
  training.join();

  clock.Advance(kRunPatience);
  EXPECT_TRUE(finished.Look(server.job()).has_value());
  JobSpec longer = server.job();
  ++longer.limits.num_epochs;
  clock.Advance(kRunPatience);
  EXPECT_FALSE(finished.Look(longer).has_value()) << "the run has been extended";
}

// Trains to the end. The server is killed after the last checkpoint and before it tells its clones
// that training is done.
void TrainAndKill(const TestFolder& folder, const TestServerOptions& options, uint32_t clones = 1) {
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  std::thread training([&] { TrainWithClones(&server, clones); });
  EXPECT_TRUE(server.WaitForEnd().ok());
  training.join();
  server.Kill();
}

TEST(FinishedRunTest, AServerOfAFinishedRunStillTellsItsClones) {
  TestFolder folder;
  const TestServerOptions options{.lease = absl::Seconds(30)};
  TrainAndKill(folder, options);
  TestServer second(folder, options);
  ASSERT_TRUE(second.Start().ok());
  std::thread closing([&] { EXPECT_TRUE(second.WaitAndClose().ok()); });
  absl::SleepFor(absl::Milliseconds(200));
  TestClone late(&second, {.peer_deadline = absl::Seconds(5)});
  const absl::Status told = late.Join();
  EXPECT_TRUE(told.ok()) << told;
  closing.join();
}

// A program that comes back after the last step begins by pulling the weights.
TEST(FinishedRunTest, AServerOfAFinishedRunStaysUntilACloneHasTheLastWeights) {
  TestFolder folder;
  const TestServerOptions options{.lease = absl::Seconds(30)};
  TrainAndKill(folder, options);
  TestServer second(folder, options);
  ASSERT_TRUE(second.Start().ok());
  PsSession session({}, second.factory(), &second.clock(), nullptr);
  ASSERT_TRUE(session.Connect({"task 0"}).ok());
  ASSERT_TRUE(session.Register(second.job().layout, /*num_images=*/0).ok());
  EXPECT_TRUE(session.training_done());
  std::atomic<bool> closed = false;
  std::thread closing([&] {
    EXPECT_TRUE(second.WaitAndClose().ok());
    closed = true;
  });
  absl::SleepFor(absl::Milliseconds(300));
  ps::CloneProgress progress;
  EXPECT_TRUE(session.Heartbeat(progress).ok());
  ps::HeartbeatRequest stranger;
  stranger.set_run_id(session.job().run_id());
  stranger.set_epoch(session.epoch());
  stranger.set_session(12345);
  stranger.mutable_progress()->set_knows_end(true);
  EXPECT_FALSE(second.MakeClient(0)->Heartbeat(stranger, absl::Seconds(20)).ok());
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_FALSE(closed) << "the clone may be pulling, and nobody else speaks for it";
  progress.set_knows_end(true);
  EXPECT_TRUE(session.Heartbeat(progress).ok());
  closing.join();
}

// A client of a finished run that tells the server what it knows.
class EndedClone {
 public:
  EndedClone(TestServer* server, uint32_t worker)
      : session_(OptionsOf(worker), server->factory(), &server->clock(), nullptr) {
    EXPECT_TRUE(session_.Connect({"task 0"}).ok());
    EXPECT_TRUE(session_.Register(server->job().layout, /*num_images=*/0).ok());
    EXPECT_TRUE(session_.training_done());
  }
  void TellThatItKnows() {
    ps::CloneProgress progress;
    progress.set_knows_end(true);
    EXPECT_TRUE(session_.Heartbeat(progress).ok());
  }

 private:
  static PsSession::Options OptionsOf(uint32_t worker) {
    PsSession::Options options;
    options.worker_id = worker;
    options.num_replicas = 2;
    options.peer_name = absl::StrCat("clone ", worker);
    return options;
  }

  PsSession session_;
};

// A spare clone knows of the end in place of no other one.
TEST(FinishedRunTest, AServerOfAFinishedRunWaitsForTheClonesOfAllReplicas) {
  TestFolder folder;
  const TestServerOptions options{.num_replicas = 2, .lease = absl::Seconds(30)};
  TrainAndKill(folder, options, /*clones=*/2);
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  EndedClone first(&server, 0);
  EndedClone spare(&server, 2);
  first.TellThatItKnows();
  spare.TellThatItKnows();
  std::atomic<bool> closed = false;
  std::thread closing([&] {
    EXPECT_TRUE(server.WaitAndClose().ok());
    closed = true;
  });
  absl::SleepFor(absl::Milliseconds(300));
  EXPECT_FALSE(closed) << "clone 1 may come back";
  if (!closed) EndedClone(&server, 1).TellThatItKnows();
  closing.join();
}

// Somebody has put the last checkpoint of another run, which has had more epochs, into the folder.
TEST(FinishedRunTest, AnotherRunsLastCheckpointIsNoEnd) {
  TestFolder folder;
  TestServer server(folder, {.tasks = 2});
  ASSERT_TRUE(server.Start().ok());
  EXPECT_TRUE(server.Await([](const auto& status) { return status.epoch() > 0; }));
  const VariableLayout& layout = server.job().layout;
  CheckpointManifest manifest;
  manifest.run_id = std::string(32, 'a');
  manifest.epoch = 99;
  manifest.step = server.job().limits.num_steps;
  manifest.training_done = true;
  const std::string other = folder.path() + "/other";
  ASSERT_TRUE(server.files().MakeDirectory(other).ok());
  ASSERT_TRUE(PublishOneShard(server.files(), other, layout, manifest,
                              std::vector<float>(layout.total_elements(), 1.0f))
                  .ok());
  const std::string name = CheckpointName(manifest.step);
  ASSERT_TRUE(
      server.files().Rename(JoinPath(other, name), JoinPath(server.train_dir(), name)).ok());
  FakeClock clock;
  FinishedRun finished(&server.files(), &clock, server.train_dir(), kRunPatience);
  clock.Advance(kRunPatience);
  EXPECT_FALSE(finished.Look(server.job()).has_value());
}

}  // namespace
}  // namespace pushpull
