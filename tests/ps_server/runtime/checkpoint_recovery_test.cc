// What a server restores when it starts, and which files it refuses.
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_paths.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

// Trains with two clones until the job ends.
absl::Status TrainToTheEnd(TestServer* server) {
  const absl::Status started = server->Start();
  if (!started.ok()) return started;
  std::thread training([server] { TrainWithClones(server, 2); });
  const absl::Status end = server->WaitAndClose();
  if (!end.ok()) server->Kill();
  training.join();
  return end;
}

// Rewrites the manifest of a checkpoint after `change`.
void ChangeManifest(TestServer* server, uint64_t step,
                    const std::function<void(CheckpointManifest*)>& change) {
  auto manifest = ReadManifest(server->files(), server->train_dir(), step);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  change(&*manifest);
  const std::string path =
      absl::StrCat(server->train_dir(), "/", CheckpointName(step), "/", kManifestFile);
  ASSERT_TRUE(WriteFileAtomically(server->files(), path, SerializeManifest(*manifest)).ok());
}

double UnixNow() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

TEST(CheckpointRecoveryTest, AResumedJobMakesTheSameBits) {
  for (const int tasks : {1, 2}) {
    TestServerOptions options;
    options.tasks = tasks;
    TestFolder whole_folder;
    TestServer whole(whole_folder, options);
    ASSERT_TRUE(TrainToTheEnd(&whole).ok());

    TestFolder folder;
    {
      TestServer first(folder, options);
      ASSERT_TRUE(first.Start().ok());
      EXPECT_TRUE(absl::IsCancelled(TrainAndDrainInStep(&first, 8)));
      const auto steps = ListCheckpoints(first.files(), first.train_dir());
      ASSERT_TRUE(steps.ok()) << steps.status();
      ASSERT_FALSE(steps->empty()) << "draining publishes a checkpoint";
      EXPECT_GE(steps->back(), 7);
      EXPECT_LE(steps->back(), 8) << "draining starts no other step";
    }
    TestServer second(folder, options);
    const absl::Status end = TrainToTheEnd(&second);
    EXPECT_TRUE(end.ok()) << end;
    EXPECT_EQ(second.Checkpointed(20), whole.Checkpointed(20)) << tasks << " tasks";
  }
}

// A checkpoint may have gigabytes, and it is in the way of training until it is read.
TEST(CheckpointRecoveryTest, AStartVerifiesTheCheckpointOnce) {
  for (const int tasks : {1, 3}) {
    TestFolder folder;
    PosixFileSystem disk;
    FailingReads counted(&disk);
    TestServerOptions options;
    options.tasks = tasks;
    options.files = &counted;
    {
      TestServer first(folder, options);
      ASSERT_TRUE(first.Start().ok());
      EXPECT_TRUE(absl::IsCancelled(TrainAndDrainInStep(&first, 8)));
    }
    TestServer second(folder, options);
    counted.Fail(FailingReads::What::kOpen, ".safetensors", absl::OkStatus(), 1000);
    ASSERT_TRUE(second.Start().ok());
    ASSERT_TRUE(second.Await([](const auto& status) { return status.version() > 0; }));
    EXPECT_EQ(counted.failed(), tasks) << "files of the checkpoint that were opened";
    EXPECT_TRUE(absl::IsCancelled(second.DrainAndClose()));
  }
}

// An open file of a network file system may become stale while the file itself is good.
TEST(CheckpointRecoveryTest, OpensTheCheckpointAgainIfTheOpenFilesHaveGoneBad) {
  TestFolder folder;
  PosixFileSystem disk;
  FailingReads hooked(&disk);
  TestServerOptions options;
  options.files = &hooked;
  TestServer first(folder, options);
  ASSERT_TRUE(first.Start().ok());
  EXPECT_TRUE(absl::IsCancelled(TrainAndDrainInStep(&first, 8)));
  const auto steps = ListCheckpoints(disk, first.train_dir());
  ASSERT_TRUE(steps.ok() && !steps->empty());
  const std::string file = absl::StrCat(first.train_dir(), "/", CheckpointName(steps->back()),
                                        "/shard-00000-of-00001.safetensors");
  const auto contents = ReadWholeFile(disk, file);
  ASSERT_TRUE(contents.ok()) << contents.status();
  // A start reads EPOCH before it opens the checkpoint, and again before it restores from it.
  hooked.AtFailure([&] {
    if (hooked.failed() != 2) return;
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
        << static_cast<char>(contents->back() ^ 1);
    EXPECT_TRUE(WriteFileAtomically(disk, file, *contents).ok());
  });
  hooked.Fail(FailingReads::What::kOpen, "/EPOCH", absl::OkStatus(), 2);
  TestServer second(folder, options);
  const absl::Status end = TrainToTheEnd(&second);
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(hooked.failed(), 2);
}

// The files of the failed attempt are gone, so every shard has to write its file again.
TEST(CheckpointRecoveryTest, TheLastCheckpointSucceedsAfterOneFailure) {
  for (const int tasks : {1, 2}) {
    TestFolder folder;
    TestServerOptions options;
    options.tasks = tasks;
    TestServer server(folder, options);
    ASSERT_TRUE(server.Start().ok());
    ASSERT_TRUE(server.Await([](const auto& status) { return status.epoch() > 0; }));
    // Before the server publishes it looks whether another server has written EPOCH.
    const std::string path = server.train_dir() + "/EPOCH";
    const auto epoch = ReadWholeFile(server.files(), path);
    ASSERT_TRUE(epoch.ok()) << epoch.status();
    std::ofstream(path) << "unreadable";
    std::thread training([&server] { TrainWithClones(&server, 2); });
    EXPECT_TRUE(server.Await([](const auto& status) { return status.checkpoint_failures() > 0; }));
    std::ofstream(path) << *epoch;
    const absl::Status end = server.WaitAndClose();
    EXPECT_TRUE(end.ok()) << end;
    if (!end.ok()) server.Kill();
    training.join();
    EXPECT_FALSE(server.Checkpointed(20).empty()) << tasks << " tasks";
    const auto manifest = ReadManifest(server.files(), server.train_dir(), 20);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(manifest->run_started_unix, manifest->saved_unix) << "it is the run's first one";
  }
}

TEST(CheckpointRecoveryTest, TheLastCheckpointRecordsThatTrainingIsDone) {
  TestFolder folder;
  TestServerOptions options;
  options.train_config = "save_checkpoints_steps: 5 max_to_keep: 2";
  TestServer server(folder, options);
  ASSERT_TRUE(TrainToTheEnd(&server).ok());
  const auto steps = ListCheckpoints(server.files(), server.train_dir());
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_EQ(steps->size(), 2) << "max_to_keep";
  const auto last = ReadManifest(server.files(), server.train_dir(), 20);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(last->training_done);
  EXPECT_EQ(last->num_replicas, 2);
  EXPECT_TRUE(last->sync);
  EXPECT_EQ(last->layout_signature, server.job().layout.signature());
  EXPECT_EQ(last->slot_names, std::vector<std::string>{"Momentum"});
  EXPECT_EQ(last->pipeline_config, server.job().config_text);
  const auto before = ReadManifest(server.files(), server.train_dir(), (*steps)[0]);
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_FALSE(before->training_done);
}

// The run began almost two hours ago. Its first checkpoint was saved 1.5 hours after its begin, so
// it is the first one of the second hour; the next one, saved after 1.8 hours, is not.
TEST(CheckpointRecoveryTest, KeepsOneCheckpointOfEachPeriodOfHours) {
  TestFolder folder;
  TestServerOptions options;
  const double begin = UnixNow() - 1.95 * 3600;
  double hours = 1.5;
  for (const uint64_t step : {10, 15}) {
    options.train_config = absl::StrCat("num_steps: ", step);
    TestServer server(folder, options);
    ASSERT_TRUE(TrainToTheEnd(&server).ok());
    ChangeManifest(&server, step, [&](CheckpointManifest* manifest) {
      manifest->run_started_unix = begin;
      manifest->saved_unix = begin + hours * 3600;
    });
    hours += 0.3;
  }
  options.train_config = "num_steps: 20 max_to_keep: 1 keep_checkpoint_every_n_hours: 1";
  TestServer server(folder, options);
  ASSERT_TRUE(TrainToTheEnd(&server).ok());
  const auto steps = ListCheckpoints(server.files(), server.train_dir());
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_EQ(*steps, (std::vector<uint64_t>{10, 20}));
}

TEST(CheckpointRecoveryTest, MappedStateKeepsEveryStepAndCheckpointsRollBack) {
  for (const bool mapped : {true, false}) {
    TestFolder folder;
    TestServerOptions options;
    options.train_config = "num_steps: 1000000 save_checkpoints_steps: 1000000";
    options.mapped = mapped;
    options.num_replicas = 1;
    TestServer server(folder, options);
    ASSERT_TRUE(server.Start().ok());
    uint64_t checkpoint = 0;
    {
      TestClone clone(&server, {});
      ASSERT_TRUE(server.Await([](const auto& status) { return status.version() >= 3; }));
      clone.Stop();
      clone.Join().IgnoreError();
      EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
      checkpoint = ListCheckpoints(server.files(), server.train_dir())->back();
    }
    ASSERT_TRUE(server.Start().ok());
    TestClone clone(&server, {});
    ASSERT_TRUE(server.Await(
        [checkpoint](const auto& status) { return status.version() >= checkpoint + 4; }));
    clone.Stop();
    clone.Join().IgnoreError();
    const uint64_t reached = server.core().Status().version();
    server.Kill();
    ASSERT_TRUE(server.Start().ok());
    ASSERT_TRUE(server.Await([&](const auto& status) {
      return status.version() == (mapped ? reached : checkpoint);
    })) << server.core().Status().ShortDebugString();
    // Anonymous memory does not record how far training was, so the server cannot count lost steps.
    EXPECT_EQ(server.core().Status().rolled_back_steps(), 0);
  }
}

TEST(CheckpointRecoveryTest, ReportsRolledBackSteps) {
  // The mapped state of one of two shards is lost; the other shard knows how many steps are lost.
  TestFolder folder;
  TestServerOptions options;
  options.train_config = "num_steps: 1000000 save_checkpoints_steps: 1000000";
  options.mapped = true;
  options.tasks = 2;
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  TestClone clone(&server, {});
  ASSERT_TRUE(server.Await([](const auto& status) { return status.version() >= 5; }));
  clone.Stop();
  clone.Join().IgnoreError();
  const uint64_t reached = server.core().Status().version();
  server.Kill();
  const std::string state_dir = folder.path() + "/state";
  const auto names = server.files().List(state_dir);
  ASSERT_TRUE(names.ok()) << names.status();
  int removed = 0;
  for (const std::string& name : *names) {
    if (!absl::StrContains(name, "-1-of-2")) continue;
    ASSERT_TRUE(server.files().RemoveFile(state_dir + "/" + name).ok());
    ++removed;
  }
  ASSERT_GE(removed, 1);
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(server.Await([](const auto& status) { return status.rolled_back_steps() > 0; }));
  const ps::StatusReply status = server.core().Status();
  EXPECT_EQ(status.version(), 0) << "there is no checkpoint yet";
  EXPECT_EQ(status.rolled_back_steps(), reached);
}

// Trains with one clone until it holds the batch of step `steps`, then kills the server. Runs with
// different `bias` have different histories.
void TrainAndKill(TestServer* server, uint64_t steps, float bias) {
  absl::Notification reached;
  absl::Notification killed;
  TestCloneOptions options;
  options.gradient_hook = [&](uint64_t position, uint32_t, GradientResult*,
                              absl::Span<float> gradient) {
    gradient[0] += bias;
    if (position != steps || reached.HasBeenNotified()) return;
    reached.Notify();
    killed.WaitForNotification();
  };
  TestClone clone(server, options);
  EXPECT_TRUE(reached.WaitForNotificationWithTimeout(absl::Seconds(60)));
  EXPECT_EQ(server->core().Status().version(), steps);
  server->Kill();
  clone.Stop();
  killed.Notify();
  clone.Join().IgnoreError();
}

// No process lives for save_checkpoints_secs, so each goes on from the mapped state of the last
// one.
TEST(CheckpointRecoveryTest, ProcessesThatEndEarlyDoNotPutTheNextCheckpointOff) {
  TestFolder folder;
  TestServerOptions options;
  options.train_config = "num_steps: 1000000 save_checkpoints_secs: 3600";
  options.mapped = true;
  options.num_replicas = 1;
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  TrainAndKill(&server, 3, 0.0f);
  const auto is_saved = [&server](uint64_t step) {
    return server.Await([step](const auto& status) { return status.durable_step() == step; });
  };
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(is_saved(3)) << "there was no checkpoint";
  TrainAndKill(&server, 6, 0.0f);
  ChangeManifest(&server, 3, [](CheckpointManifest* m) { m->saved_unix = UnixNow() - 3600; });
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(is_saved(6)) << "the checkpoint was an hour old";
  TrainAndKill(&server, 9, 0.0f);
  ChangeManifest(&server, 6, [](CheckpointManifest* m) { m->saved_unix = UnixNow() + 1e6; });
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(is_saved(9)) << "the clock has jumped back";
}

TEST(CheckpointRecoveryTest, DoesNotMixHistoriesWithTheSameVersionNumber) {
  // Task 1 trains on one machine, moves to another, and returns to the first, where its old file
  // is.
  TestFolder folder;
  TestServerOptions options;
  options.train_config = "num_steps: 1000000 save_checkpoints_steps: 1000000";
  options.mapped = true;
  options.tasks = 2;
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  TrainAndKill(&server, 6, 0.0f);
  const std::string state_dir = folder.path() + "/state";
  std::string path;
  const auto names = server.files().List(state_dir);
  ASSERT_TRUE(names.ok()) << names.status();
  for (const std::string& name : *names) {
    if (absl::StrContains(name, "-1-of-2")) path = state_dir + "/" + name;
  }
  const auto left = ReadWholeFile(server.files(), path);
  ASSERT_TRUE(left.ok()) << left.status();
  ASSERT_TRUE(server.files().RemoveFile(path).ok());
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(server.Await([](const auto& status) { return status.rolled_back_steps() == 6; }));
  TrainAndKill(&server, 6, 1.0f);
  ASSERT_TRUE(WriteFileAtomically(server.files(), path, *left).ok());
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(server.Await([](const auto& status) { return status.rolled_back_steps() == 6; }))
      << "both tasks hold version 6, but of different histories, and there is no checkpoint";
  EXPECT_EQ(server.core().Status().version(), 0);
}

// A train_dir with one checkpoint at step 20.
class RefusalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    TestServer server(folder_, {});
    ASSERT_TRUE(TrainToTheEnd(&server).ok());
    const auto steps = ListCheckpoints(files_, server.train_dir());
    ASSERT_TRUE(steps.ok());
    ASSERT_EQ(*steps, std::vector<uint64_t>{20});
    file_ = server.train_dir() + "/ckpt-00000020/shard-00000-of-00001.safetensors";
    const auto contents = ReadWholeFile(files_, file_);
    ASSERT_TRUE(contents.ok()) << contents.status();
    contents_ = *contents;
  }

  absl::Status StartOn(TestServerOptions options) {
    TestServer server(folder_, std::move(options));
    const absl::Status started = server.Start();
    return started.ok() ? server.WaitForEnd() : started;
  }
  void ReplaceFile(absl::string_view contents) {
    ASSERT_TRUE(WriteFileAtomically(files_, file_, contents).ok());
  }

  TestFolder folder_;
  PosixFileSystem files_;
  std::string file_;
  std::string contents_;
};

TEST_F(RefusalTest, AFlippedByteOrATruncationStopsTheJob) {
  std::string flipped = contents_;
  flipped[flipped.size() / 2] ^= 1;
  for (const std::string& damaged : {flipped, contents_.substr(0, contents_.size() - 7)}) {
    ReplaceFile(damaged);
    const absl::Status end = StartOn({});
    EXPECT_FALSE(end.ok());
    EXPECT_TRUE(absl::StrContains(end.message(), "ckpt-00000020")) << end;
    EXPECT_TRUE(absl::StrContains(end.message(), "shard-00000-of-00001.safetensors")) << end;
  }
  ReplaceFile(contents_);
  EXPECT_TRUE(StartOn({}).ok()) << "the undamaged checkpoint opens: the job is done";
}

TEST_F(RefusalTest, NamesTheDifferenceToAnotherModel) {
  TestServerOptions options;
  options.large_elements = 100;
  const absl::Status end = StartOn(options);
  EXPECT_FALSE(end.ok());
  EXPECT_TRUE(absl::StrContains(end.message(), "toy/large/weights")) << end;
}

TEST_F(RefusalTest, NamesWhatAnotherOptimizerLacks) {
  TestServerOptions options;
  options.train_config = "optimizer { adam_optimizer {} }";
  const absl::Status adam = StartOn(options);
  EXPECT_TRUE(absl::IsFailedPrecondition(adam)) << adam;
  for (const char* word : {"train_config.optimizer", "Adam", "ckpt-00000020", "Momentum"}) {
    EXPECT_TRUE(absl::StrContains(adam.message(), word)) << word << ": " << adam;
  }
  // A sum of differences is no sum of gradients.
  options.train_config = "local_steps: 8 outer_optimizer { learning_rate: 0.7 momentum: 0.9 }";
  const absl::Status outer = StartOn(options);
  EXPECT_TRUE(absl::IsFailedPrecondition(outer)) << outer;
  EXPECT_TRUE(absl::StrContains(outer.message(), "train_config.outer_optimizer keeps")) << outer;
}

TEST(CheckpointRecoveryTest, NamesMovingAveragesThatACheckpointLacks) {
  TestFolder folder;
  TestServerOptions options;
  options.train_config = "optimizer { use_moving_average: false }";
  {
    TestServer server(folder, options);
    const absl::Status end = TrainToTheEnd(&server);
    ASSERT_TRUE(end.ok()) << end;
  }
  options.train_config = "optimizer { use_moving_average: true }";
  TestServer server(folder, options);
  const absl::Status started = server.Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(started)) << started;
  EXPECT_TRUE(absl::StrContains(started.message(), "use_moving_average")) << started;
}

TEST(CheckpointRecoveryTest, RefusesToFreezeStatisticsThatStillNeedTheirCorrection) {
  TestFolder folder;
  TestServerOptions options;
  options.pipeline_config =
      "model { classifier { num_classes: 10 feature_extractor { conv_hyperparams { batch_norm { "
      "bias_corrected_moving_statistics: true } } } } } "
      "train_input_reader { synthetic_input_reader {} } "
      "eval_input_reader { synthetic_input_reader { seed: 2 } }";
  {
    TestServer server(folder, options);
    const absl::Status end = TrainToTheEnd(&server);
    ASSERT_TRUE(end.ok()) << end;
  }
  options.train_config = "num_steps: 30";
  options.pipeline_config += " model { classifier { freeze_batchnorm: true } }";
  TestServer server(folder, options);
  const absl::Status started = server.Start();
  EXPECT_TRUE(absl::IsFailedPrecondition(started)) << started;
  EXPECT_TRUE(absl::StrContains(started.message(), "freezes the batch norm of")) << started;
}

// A clone updates the moving statistics in each of its mini-batches.
TEST(CheckpointRecoveryTest, TheManifestCountsTheUpdatesOfLocalSteps) {
  TestFolder folder;
  TestServerOptions options;
  options.train_config = "num_steps: 4 local_steps: 8";
  TestServer server(folder, options);
  const absl::Status end = TrainToTheEnd(&server);
  ASSERT_TRUE(end.ok()) << end;
  const auto manifest = ReadManifest(server.files(), server.train_dir(), 4);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->updates, 32);
}

TEST(CheckpointRecoveryTest, TheManifestCountsOnWhereLocalStepsChange) {
  TestFolder folder;
  TestServerOptions options;
  options.train_config = "num_steps: 4 optimizer { momentum_optimizer {} }";
  {
    TestServer server(folder, options);
    const absl::Status end = TrainToTheEnd(&server);
    ASSERT_TRUE(end.ok()) << end;
  }
  options.train_config = "num_steps: 6 local_steps: 8";
  TestServer server(folder, options);
  const absl::Status end = TrainToTheEnd(&server);
  ASSERT_TRUE(end.ok()) << end;
  const auto manifest = ReadManifest(server.files(), server.train_dir(), 6);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->updates, 4 + 2 * 8);
}

// Mapped state goes on with another number of local steps too.
// Trains in mapped state only, with local_steps 8, until the server is killed. Returns the version.
uint64_t TrainWithoutCheckpoint(const TestFolder& folder, TestServerOptions options) {
  options.train_config = "num_steps: 1000000 save_checkpoints_secs: 0 local_steps: 8";
  TestServer server(folder, options);
  EXPECT_TRUE(server.Start().ok());
  TestClone first(&server, {.num_replicas = 2});
  TestClone second(&server, {.worker_id = 1, .num_replicas = 2});
  EXPECT_TRUE(server.Await([](const auto& status) { return status.version() >= 3; }));
  for (TestClone* const clone : {&first, &second}) clone->Stop();
  for (TestClone* const clone : {&first, &second}) clone->Join().IgnoreError();
  const uint64_t version = server.core().Status().version();
  server.Kill();
  return version;
}

TEST(CheckpointRecoveryTest, TheManifestCountsTheStepsThatMappedStateHolds) {
  for (const bool config_is_missing : {false, true}) {
    TestFolder folder;
    TestServerOptions options;
    options.mapped = true;
    options.num_replicas = 2;
    const uint64_t version = TrainWithoutCheckpoint(folder, options);
    // If the last server's config is missing, the number of today's config counts.
    const int local_steps = config_is_missing ? 8 : 4;
    options.train_config = absl::StrCat("num_steps: ", version + 2, " local_steps: ", local_steps);
    const std::string config = folder.path() + "/train/pipeline.config";
    if (config_is_missing) {
      ASSERT_EQ(unlink(config.c_str()), 0) << config;
    }
    TestServer server(folder, options);
    const absl::Status end = TrainToTheEnd(&server);
    ASSERT_TRUE(end.ok()) << end;
    const auto manifest = ReadManifest(server.files(), server.train_dir(), version + 2);
    ASSERT_TRUE(manifest.ok()) << manifest.status();
    EXPECT_EQ(manifest->updates, version * 8 + 2 * local_steps);
  }
}

TEST_F(RefusalTest, ADamagedCheckpointFallsBackToThePreviousOne) {
  TestServerOptions options;
  options.train_config = "num_steps: 25";
  {
    TestServer server(folder_, options);
    const absl::Status end = TrainToTheEnd(&server);
    ASSERT_TRUE(end.ok()) << end;
  }
  file_ = folder_.path() + "/train/ckpt-00000025/MANIFEST.json";
  ReplaceFile("{}");
  TestServerOptions longer;
  longer.train_config = "num_steps: 1000";
  TestServer server(folder_, longer);
  ASSERT_TRUE(server.Start().ok());
  EXPECT_TRUE(server.Await([](const auto& status) { return status.version() == 20; }));
}

TEST_F(RefusalTest, RefusesASecondServerOnTheSameFolder) {
  TestServerOptions options;
  options.train_config = "num_steps: 1000";
  TestServer first(folder_, options);
  ASSERT_TRUE(first.Start().ok());
  TestServer second(folder_, options);
  const absl::Status started = second.Start();
  EXPECT_TRUE(absl::IsUnavailable(started)) << started;
}

TEST(CheckpointRecoveryTest, ARealModelStartsFromItsInitializers) {
  TestFolder folder;
  TestServerOptions options;
  options.toy_layout = false;
  options.num_replicas = 1;
  TestServer server(folder, options);
  ASSERT_TRUE(server.Start().ok());
  // The server writes this file once it has recovered.
  ASSERT_TRUE(server.Await([&server](const auto&) {
    return server.files().GetInfo(server.train_dir() + "/pipeline.config").ok();
  }));
  EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
  const auto config = ReadWholeFile(server.files(), server.train_dir() + "/pipeline.config");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config, server.job().config_text);
}

TEST(CheckpointRecoveryTest, TheConfigSaysTheModeThatRuns) {
  for (const bool sync : {true, false}) {
    TestServerOptions options;
    options.sync = sync;
    TestFolder folder;
    const TestServer server(folder, options);
    EXPECT_EQ(server.job().config.train_config().sync_replicas(), sync);
    EXPECT_EQ(absl::StrContains(server.job().config_text, "sync_replicas: true"), sync);
  }
}

}  // namespace
}  // namespace pushpull
