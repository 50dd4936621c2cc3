// What a server may do to the files of a run at the edges of its life: when it is refused, when it
// ends before it has recovered, and when another server has taken over its folder.
#include "ps_server/runtime/run_files.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/base/record_io.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/retention.h"
#include "common/checkpoint/train_dir.h"
#include "common/model/graph_def.h"
#include "common/model/model_layout.h"
#include "protos/event.pb.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/memory_file_system.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

// Returns the contents of every file below the folder except lock files.
std::map<std::string, std::string> Contents(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().filename() == "LOCK") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    // The control page of a state file holds a process id, which is only used in messages.
    if (absl::StrContains(entry.path().string(), "/state/") && bytes.size() > 2072) {
      bytes.replace(2056, 8, 8, '\0');
    }
    files[entry.path().string()] = std::move(bytes);
  }
  return files;
}

class RunFilesTest : public ::testing::Test {
 protected:
  RunFilesTest() {
    options_.train_config = "num_steps: 1000000 save_checkpoints_steps: 5 max_to_keep: 0";
    options_.mapped = true;
    options_.num_replicas = 1;
  }

  // Starts the server and trains some steps.
  void TrainSomeSteps(TestServer* server) {
    ASSERT_TRUE(server->Start().ok());
    TestClone clone(server, {});
    ASSERT_TRUE(server->Await([](const auto& status) { return status.version() >= 3; }));
    clone.Stop();
    clone.Join().IgnoreError();
  }

  // Trains until a checkpoint of step `durable_step` or later exists and `step` has been applied,
  // then kills the server as SIGKILL does. Returns the last applied version.
  uint64_t TrainAndKill(uint64_t step, uint64_t durable_step = 5) {
    TestServer server(folder_, options_);
    EXPECT_TRUE(server.Start().ok());
    TestClone clone(&server, {});
    EXPECT_TRUE(server.Await([&](const auto& status) {
      return status.version() >= step && status.durable_step() >= durable_step;
    }));
    clone.Stop();
    clone.Join().IgnoreError();
    const uint64_t reached = server.core().Status().version();
    server.Kill();
    return reached;
  }

  void FlipAByteOfEveryCheckpoint() {
    for (const auto& entry : std::filesystem::directory_iterator(train_dir())) {
      if (!absl::StartsWith(entry.path().filename().string(), "ckpt-")) continue;
      const std::string shard = (entry.path() / "shard-00000-of-00001.safetensors").string();
      std::fstream file(shard, std::ios::binary | std::ios::in | std::ios::out);
      file.seekg(-3, std::ios::end);
      const char byte = static_cast<char>(file.get() ^ 1);
      file.seekp(-3, std::ios::end);
      file.put(byte);
    }
  }

  void ExpectResumesAt(uint64_t version) {
    TestServer server(folder_, options_);
    ASSERT_TRUE(server.Start().ok());
    ASSERT_TRUE(server.Await([](const auto& status) { return status.epoch() > 0; }));
    EXPECT_TRUE(server.Await([&](const auto& status) { return status.version() == version; }))
        << server.core().Status().ShortDebugString();
  }

  std::string train_dir() const { return folder_.path() + "/train"; }

  TestFolder folder_;
  TestServerOptions options_;
  PosixFileSystem files_;
};

TEST_F(RunFilesTest, AServerThatFindsOnlyDamagedCheckpointsKeepsTheMappedState) {
  const uint64_t reached = TrainAndKill(8);
  FlipAByteOfEveryCheckpoint();
  const std::map<std::string, std::string> before = Contents(folder_.path());
  {
    TestServer server(folder_, options_);
    const absl::Status started = server.Start();
    EXPECT_TRUE(absl::IsDataLoss(started)) << started;
  }
  EXPECT_EQ(Contents(folder_.path()), before);
  // Follows the advice in the message: moves the damaged checkpoints away.
  for (const auto& entry : std::filesystem::directory_iterator(train_dir())) {
    const std::string name = entry.path().filename().string();
    if (absl::StartsWith(name, "ckpt-")) {
      std::filesystem::rename(entry.path(), folder_.path() + "/damaged-" + name);
    }
  }
  ExpectResumesAt(reached);
}

// TensorBoard shows the newest graph of a folder, so a start with another model must replace it.
TEST_F(RunFilesTest, EachStartWritesTheNetworkToItsEventFile) {
  const std::string expected =
      MakeGraphDef(BuildNetworkSpec(MakeTinyConfig(options_.train_config).model())).DebugString();
  for (int start = 0; start < 2; ++start) TrainAndKill(5 + start);
  int event_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(train_dir())) {
    if (!absl::StrContains(entry.path().filename().string(), "tfevents")) continue;
    ++event_files;
    const auto file = files_.OpenForRead(entry.path().string());
    ASSERT_TRUE(file.ok()) << file.status();
    RecordReader reader(file->get(), entry.path().string());
    int graphs = 0;
    for (std::string record; *reader.Next(&record);) {
      event::Event event;
      ASSERT_TRUE(event.ParseFromString(record));
      if (event.what_case() != event::Event::kGraphDef) continue;
      ++graphs;
      tensorflow::GraphDef graph;
      ASSERT_TRUE(graph.ParseFromString(event.graph_def()));
      EXPECT_EQ(graph.DebugString(), expected);
    }
    EXPECT_EQ(graphs, 1) << entry.path();
  }
  EXPECT_EQ(event_files, 2);
}

// The last two calls of JobRestored create the event file and write to it.
TEST(RunFiles, AnEventFileThatCannotBeWrittenDoesNotStopTheJob) {
  int64_t calls = 0;
  for (const int64_t from_end : {0, 1, 2}) {
    MemoryFileSystem files;
    RunFiles run(&files, 0);
    ASSERT_EQ(run.OpenTrainDir("/d", "config", "graph"), absl::OkStatus());
    ASSERT_EQ(run.PersistEpoch(1), absl::OkStatus());
    files.SetFault(FileFault{FileFault::Kind::kDiskFull, from_end == 0 ? 1000 : calls - from_end});
    EXPECT_EQ(run.JobRestored(), absl::OkStatus()) << from_end;
    if (from_end == 0) calls = files.calls();
    ASSERT_NE(run.events(), nullptr);
    EXPECT_EQ(run.events()->path().empty(), from_end > 0) << from_end;
    run.End(std::nullopt);
    EXPECT_FALSE(run.events()->path().empty()) << "the end tries again";
  }
}

TEST_F(RunFilesTest, AServerStoppedDuringRecoveryKeepsTheMappedState) {
  const uint64_t reached = TrainAndKill(8);
  for (int i = 0; i < 3; ++i) {
    TestServer server(folder_, options_);
    ASSERT_TRUE(server.Start().ok());
    // The drain arrives while the checkpoint is read or just after.
    EXPECT_TRUE(absl::IsCancelled(server.DrainAndClose()));
  }
  ExpectResumesAt(reached);
}

TEST_F(RunFilesTest, OneOfTwoTasksThatStartsAndStopsAloneKeepsItsState) {
  options_.tasks = 2;
  const uint64_t reached = TrainAndKill(8);
  const std::map<std::string, std::string> before = Contents(folder_.path() + "/state");
  TestServer both(folder_, options_);
  {
    // Task 0 waits for the shard of task 1, which never answers.
    class SilentPeer final : public ShardPeer {
     public:
      void Call(const ShardCall&, Done) override {}
      void Close(const absl::Status&) override {}
      void Stop() override {}
      absl::Status EndTask(const ps::EndTaskRequest& request) override {
        EXPECT_TRUE(!request.has_verified_step() || request.verified_step() > 0);
        return absl::OkStatus();
      }
    };
    ServerCoreOptions options;
    options.train_dir = train_dir();
    options.num_tasks = 1;
    options.state_dir = folder_.path() + "/state";
    SteadyClock clock;
    auto core = ServerCore::Open(both.job(), options, &files_, &clock);
    ASSERT_TRUE(core.ok()) << core.status();
    std::vector<std::unique_ptr<ShardPeer>> remote;
    remote.push_back(std::make_unique<SilentPeer>());
    (*core)->Start({"task 0", "task 1"}, std::move(remote), [] {});
    (*core)->Drain();
    const absl::Status end =
        (*core)->WaitForEnd(absl::Seconds(60)).value_or(absl::DeadlineExceededError("no end"));
    EXPECT_TRUE(absl::IsCancelled(end)) << end;
    (*core)->AnnounceEnd(end);
    (*core)->Close();
  }
  EXPECT_EQ(Contents(folder_.path() + "/state"), before);
  ExpectResumesAt(reached);
}

TEST_F(RunFilesTest, AStartWithAnotherModelChangesNothing) {
  const uint64_t reached = TrainAndKill(8);
  const std::map<std::string, std::string> before = Contents(folder_.path());
  {
    TestServerOptions other = options_;
    other.large_elements = 100;
    TestServer server(folder_, other);
    const absl::Status started = server.Start();
    EXPECT_TRUE(absl::IsFailedPrecondition(started)) << started;
    EXPECT_THAT(std::string(started.message()), HasSubstr("toy/large/weights"));
  }
  EXPECT_EQ(Contents(folder_.path()), before);
  ExpectResumesAt(reached);
}

TEST_F(RunFilesTest, AnotherOptimizerRenamesTheStateButKeepsIt) {
  // The checkpoint has no slots of that optimizer, so recovery is refused after the shard was
  // opened.
  TrainAndKill(8);
  const std::map<std::string, std::string> before = Contents(folder_.path() + "/state");
  {
    TestServerOptions other = options_;
    absl::StrAppend(&other.train_config,
                    " optimizer { adam_optimizer { learning_rate { constant_learning_rate { "
                    "learning_rate: 0.1 } } } }");
    TestServer server(folder_, other);
    const absl::Status started = server.Start();
    const absl::Status end = started.ok() ? server.WaitAndClose() : started;
    EXPECT_FALSE(end.ok());
  }
  EXPECT_EQ(Contents(folder_.path() + "/state"), before);
}

TEST_F(RunFilesTest, AFinishedJobLeavesNoState) {
  options_.train_config = "num_steps: 20";
  TestServer server(folder_, options_);
  ASSERT_TRUE(server.Start().ok());
  std::thread training([&server] { TrainWithClones(&server, 1); });
  EXPECT_TRUE(server.WaitAndClose().ok());
  training.join();
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/state")) << "the server had made it";
}

TEST_F(RunFilesTest, AFinishedJobWithADamagedCheckpointKeepsItsState) {
  options_.train_config = "num_steps: 20";
  TestServer server(folder_, options_);
  ASSERT_TRUE(server.Start().ok());
  std::thread training([&server] { TrainWithClones(&server, 1); });
  const absl::Status end = server.WaitForEnd();
  training.join();
  EXPECT_TRUE(end.ok()) << end;
  FlipAByteOfEveryCheckpoint();
  EXPECT_TRUE(server.WaitAndClose().ok());
  EXPECT_EQ(Contents(folder_.path() + "/state").size(), 1u);
}

TEST_F(RunFilesTest, ACopyOfTheTrainDirDoesNotUseTheStateOfTheOriginal) {
  const uint64_t reached = TrainAndKill(8);
  const auto steps = ListCheckpoints(files_, train_dir());
  ASSERT_TRUE(steps.ok());
  ASSERT_FALSE(steps->empty());
  std::filesystem::copy(train_dir(), folder_.path() + "/copy",
                        std::filesystem::copy_options::recursive);
  std::filesystem::rename(train_dir(), folder_.path() + "/original");
  std::filesystem::rename(folder_.path() + "/copy", train_dir());
  if (steps->back() == reached) GTEST_SKIP() << "the last applied step already has a checkpoint";
  ExpectResumesAt(steps->back());
}

TEST_F(RunFilesTest, FromCheckpointRollsBackForGood) {
  TrainAndKill(13, 10);
  const auto steps = ListCheckpoints(files_, train_dir());
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_GE(steps->size(), 2u);
  const uint64_t first = steps->front();
  TestServerOptions back = options_;
  back.from_checkpoint = true;
  back.from_step = first;
  uint64_t reached = 0;
  {
    TestServer server(folder_, back);
    ASSERT_TRUE(server.Start().ok());
    ASSERT_TRUE(server.Await([first](const auto& status) { return status.version() == first; }));
    TestClone clone(&server, {});
    ASSERT_TRUE(
        server.Await([first](const auto& status) { return status.version() >= first + 2; }));
    clone.Stop();
    clone.Join().IgnoreError();
    reached = server.core().Status().version();
    server.Kill();
  }
  for (size_t i = 1; i < steps->size(); ++i) {
    const std::string name = absl::StrCat(train_dir(), "/", CheckpointName((*steps)[i]));
    EXPECT_TRUE(files_.GetInfo(name + ".given-up").ok())
        << name << " must be kept under another name";
  }
  ExpectResumesAt(reached);
}

// An earlier process had begun to delete the later checkpoint, but an evaluator protects it. So it
// gets its name back, and is given up like any other.
TEST_F(RunFilesTest, FromCheckpointGivesUpALaterOneThatIsPutBack) {
  TrainAndKill(10, 10);
  const auto steps = ListCheckpoints(files_, train_dir());
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_GE(steps->size(), 2u);
  const std::string name = CheckpointName(steps->back());
  const std::string later = train_dir() + "/" + name;
  std::filesystem::rename(later, absl::StrCat(train_dir(), "/.trash-", name, "-0-0"));
  ASSERT_TRUE(files_.MakeDirectory(train_dir() + "/eval").ok());
  const BestCheckpoint best = {steps->back(), "accuracy", 0.5};
  ASSERT_TRUE(WriteBestCheckpoint(files_, train_dir() + "/eval", best).ok());
  ASSERT_TRUE(files_.MakeDirectory(later + ".given-up").ok()) << "as an earlier decision leaves it";
  TestServerOptions back = options_;
  back.from_checkpoint = true;
  back.from_step = steps->front();
  TestServer server(folder_, back);
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(server.Await([&](const auto& status) { return status.version() == steps->front(); }));
  EXPECT_TRUE(files_.GetInfo(later + ".given-up-2/MANIFEST.json").ok());
  EXPECT_FALSE(files_.GetInfo(later).ok());
}

TEST_F(RunFilesTest, FromAMissingCheckpointListsTheExistingOnes) {
  const uint64_t reached = TrainAndKill(8);
  const auto steps = ListCheckpoints(files_, train_dir());
  ASSERT_TRUE(steps.ok()) << steps.status();
  TestServerOptions back = options_;
  back.from_checkpoint = true;
  back.from_step = 3;
  {
    TestServer server(folder_, back);
    const absl::Status started = server.Start();
    EXPECT_TRUE(absl::IsNotFound(started)) << started;
    EXPECT_THAT(std::string(started.message()),
                HasSubstr(absl::StrCat("there are those of steps ", steps->front())));
  }
  back.from_step = UINT64_MAX;
  {
    TestServer server(folder_, back);
    const absl::Status started = server.Start();
    EXPECT_TRUE(absl::IsNotFound(started)) << started;
    EXPECT_THAT(std::string(started.message()), HasSubstr("of step 18446744073709551615"));
  }
  ExpectResumesAt(reached);
}

TEST_F(RunFilesTest, FromTheNewestCheckpointIsRefusedBeforeThereIsOne) {
  options_.train_config = "num_steps: 1000000 save_checkpoints_steps: 1000000";
  const uint64_t reached = TrainAndKill(8, 0);
  TestServerOptions back = options_;
  back.from_checkpoint = true;
  {
    TestServer server(folder_, back);
    const absl::Status started = server.Start();
    EXPECT_TRUE(absl::IsNotFound(started)) << started;
    EXPECT_THAT(std::string(started.message()),
                HasSubstr("start without --from_checkpoint to go on from the mapped state"));
  }
  ExpectResumesAt(reached);
}

// The shards would drop their newer versions when they restore the checkpoint.
TEST_F(RunFilesTest, FromCheckpointWithAnotherNumberOfReplicasChangesNothing) {
  options_.sync = false;
  const uint64_t reached = TrainAndKill(8);
  const std::map<std::string, std::string> before = Contents(folder_.path());
  {
    TestServerOptions back = options_;
    back.from_checkpoint = true;
    back.num_replicas = 3;
    TestServer server(folder_, back);
    const absl::Status started = server.Start();
    EXPECT_TRUE(absl::IsFailedPrecondition(started)) << started;
    EXPECT_THAT(std::string(started.message()),
                HasSubstr("start the server with --num_replicas=1"));
  }
  EXPECT_EQ(Contents(folder_.path()), before);
  ExpectResumesAt(reached);
}

TEST_F(RunFilesTest, TooManyReplicasNameTheLimitThatAppliesAndWhatToDo) {
  const auto refusal = [this](const std::string& train_config, bool sync, uint32_t num_replicas) {
    TestServerOptions options = options_;
    options.train_config = train_config;
    options.sync = sync;
    options.num_replicas = num_replicas;
    TestServer server(folder_, options);
    const absl::Status started = server.Start();
    EXPECT_TRUE(absl::IsFailedPrecondition(started)) << started;
    return std::string(started.message());
  };
  constexpr char kTooMany[] =
      "--num_replicas sets 300 replicas, but a job has at most 256: lower --num_replicas";
  EXPECT_EQ(refusal("batch_size: 1000", true, 300), kTooMany);
  EXPECT_EQ(refusal("batch_size: 10", false, 300), kTooMany);
  EXPECT_EQ(refusal("batch_size: 10", true, 11),
            "--num_replicas sets 11 replicas, which cannot share a batch of 10 samples: lower "
            "--num_replicas, or raise train_config.batch_size");
  {
    const auto locked = TrainDir::Open(&files_, train_dir());
    ASSERT_TRUE(locked.ok()) << locked.status();
    ASSERT_TRUE((*locked)->WriteReplicas(12).ok());
  }
  const std::string file = train_dir() + "/REPLICAS";
  EXPECT_EQ(
      refusal("batch_size: 10", true, 0),
      absl::StrCat(file, " sets 12 replicas, which cannot share a batch of 10 samples: remove ",
                   file, ", or raise train_config.batch_size"));
}

TEST_F(RunFilesTest, TheNumberOfAScaledRunDoesNotHoldInAsynchronousMode) {
  {
    const auto locked = TrainDir::Open(&files_, train_dir());
    ASSERT_TRUE(locked.ok()) << locked.status();
    ASSERT_TRUE((*locked)->WriteReplicas(3).ok());
  }
  for (const bool sync : {true, false}) {
    TestServerOptions options = options_;
    options.sync = sync;
    options.mapped = false;
    TestServer server(folder_, options);
    ASSERT_TRUE(server.Start().ok());
    EXPECT_EQ(server.core().Status().num_replicas(), sync ? 3u : 1u) << "sync: " << sync;
  }
}

// A number that was used before would give two versions the same id.
TEST_F(RunFilesTest, ALostEpochFileDoesNotMakeAnEpochTwice) {
  options_.mapped = false;
  TrainAndKill(8);
  ASSERT_TRUE(std::filesystem::remove(train_dir() + "/EPOCH"));
  TestServer server(folder_, options_);
  ASSERT_TRUE(server.Start().ok());
  ASSERT_TRUE(server.Await([](const auto& status) { return status.epoch() > 0; }));
  EXPECT_GE(server.core().Status().epoch(), 2u) << "the checkpoints are of epoch 1";
}

TEST_F(RunFilesTest, AServerWhoseFolderWasTakenOverCannotPublish) {
  options_.train_config = "num_steps: 1000000 save_checkpoints_steps: 1000000";
  TestServer server(folder_, options_);
  ASSERT_NO_FATAL_FAILURE(TrainSomeSteps(&server));
  // The first thing that another server does, while this server is suspended.
  ASSERT_TRUE(WriteFileAtomically(files_, train_dir() + "/EPOCH", "7\n").ok());
  const absl::Status end = server.DrainAndClose();
  EXPECT_THAT(std::string(end.message()), HasSubstr("another server has taken the folder over"));
  const auto steps = ListCheckpoints(files_, train_dir());
  EXPECT_TRUE(!steps.ok() || steps->empty());
  EXPECT_EQ(Contents(folder_.path() + "/state").size(), 1u)
      << "the state holds the only copy of the applied steps";
}

// Somebody removes the folder of a running server and starts another run there.
TEST_F(RunFilesTest, AServerWhoseFolderWasMadeAnewMixesNoRuns) {
  options_.train_config = "num_steps: 1000000 save_checkpoints_steps: 1000000";
  TestServer server(folder_, options_);
  ASSERT_NO_FATAL_FAILURE(TrainSomeSteps(&server));
  std::filesystem::remove_all(train_dir());
  RunFiles other(&files_, 0);
  ASSERT_TRUE(other.OpenTrainDir(train_dir(), "", "").ok());
  ASSERT_TRUE(other.PersistEpoch(1).ok());
  const absl::Status end = server.DrainAndClose();
  EXPECT_TRUE(absl::IsAborted(end)) << end;
  EXPECT_THAT(std::string(end.message()),
              HasSubstr(absl::StrCat("belongs to run ", other.run_id(), " now")));
  const auto steps = ListCheckpoints(files_, train_dir());
  EXPECT_TRUE(steps.ok() && steps->empty()) << steps.status();
}

// The lock of a server that was suspended may have expired, on NFS for example.
TEST_F(RunFilesTest, AServerWhoseFolderWasTakenOverRaisesNoEpoch) {
  RunFiles first(&files_, 0);
  ASSERT_TRUE(first.OpenTrainDir(train_dir(), "", "").ok());
  ASSERT_TRUE(first.PersistEpoch(1).ok());
  std::filesystem::remove(train_dir() + "/LOCK");
  RunFiles second(&files_, 0);
  ASSERT_TRUE(second.OpenTrainDir(train_dir(), "", "").ok());
  ASSERT_TRUE(second.PersistEpoch(2).ok());
  const std::map<std::string, std::string> before = Contents(folder_.path());
  const absl::Status status = first.PersistEpoch(2);
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/EPOCH holds 2, expected less than 2"));
  EXPECT_EQ(Contents(folder_.path()), before);
}

TEST_F(RunFilesTest, AServerWhoseFolderWasTakenOverScalesNothing) {
  RunFiles first(&files_, 0);
  ASSERT_TRUE(first.OpenTrainDir(train_dir(), "", "").ok());
  ASSERT_TRUE(first.PersistEpoch(1).ok());
  ASSERT_TRUE(first.PersistReplicas(2).ok());
  std::filesystem::remove(train_dir() + "/LOCK");
  RunFiles second(&files_, 0);
  ASSERT_TRUE(second.OpenTrainDir(train_dir(), "", "").ok());
  ASSERT_TRUE(second.PersistEpoch(2).ok());
  const std::map<std::string, std::string> before = Contents(folder_.path());
  const absl::Status status = first.PersistReplicas(3);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(Contents(folder_.path()), before);
}

TEST_F(RunFilesTest, ANewEpochRemovesWhatThePreviousServerHasNotPublished) {
  RunFiles first(&files_, 0);
  ASSERT_TRUE(first.OpenTrainDir(train_dir(), "", "").ok());
  ASSERT_TRUE(first.PersistEpoch(1).ok());
  const std::string pending = train_dir() + "/.tmp-ckpt-00000009-e1";
  std::filesystem::create_directory(pending);
  std::filesystem::remove(train_dir() + "/LOCK");
  RunFiles second(&files_, 0);
  ASSERT_TRUE(second.OpenTrainDir(train_dir(), "", "").ok());
  EXPECT_TRUE(std::filesystem::exists(pending)) << "a start may still be refused";
  ASSERT_TRUE(second.PersistEpoch(2).ok());
  EXPECT_FALSE(std::filesystem::exists(pending));
}

// Fails each call of the start of a server, one at a time, in each way in which a disk fails.
TEST(RunFilesFaultsTest, ErrorsOfADiskMayPassAndLeftoversAreRemovedFirst) {
  for (const FileFault::Kind kind :
       {FileFault::Kind::kDiskFull, FileFault::Kind::kShortWrite, FileFault::Kind::kIoError}) {
    int epochs = 0;
    for (int64_t call = 0;; ++call) {
      MemoryFileSystem files;
      RunFiles run_files(&files, 0);
      ASSERT_TRUE(run_files.OpenTrainDir("/train", "config", "").ok());
      for (const char* name : {"/train/.tmp-ckpt-00000009-e1", "/train/.trash-ckpt-00000004-5-0"}) {
        ASSERT_TRUE(files.MakeDirectory(name).ok());
        ASSERT_TRUE(WriteFileAtomically(files, JoinPath(name, "shard"), "bytes").ok());
      }
      files.SetFault(FileFault{kind, call});
      absl::Status status = run_files.PersistEpoch(2);
      if (absl::StrContains(status.message(), "EPOCH")) {
        ++epochs;
        const std::vector<std::string> left = *files.List("/train");
        for (const std::string& name : left) EXPECT_NE(name[0], '.') << call << ": " << name;
      }
      if (status.ok()) status = run_files.PersistReplicas(3);
      if (status.ok()) status = run_files.JobRestored();
      EXPECT_TRUE(status.ok() || IsPassing(status)) << "call " << call << ": " << status;
      if (files.calls() <= call) break;
      ASSERT_LT(call, 200);
    }
    EXPECT_GE(epochs, 4) << "create, write, fsync, close and rename";
  }
}

TEST_F(RunFilesTest, AStateFileThatCannotBeRenamedIsRenamedAtTheNextRestore) {
  const JobSpec job = JobSpec::Create(MakeTinyConfig(options_.train_config), true, 1);
  VariableStoreOptions options;
  options.state_dir = folder_.path() + "/state";
  options.name = "file";
  options.owner.run_id = "0123456789abcdef";
  auto store = VariableStore::Open(options, job.layout, job.optimizer);
  ASSERT_TRUE(store.ok()) << store.status();
  RunFiles run_files(&files_, 1);
  run_files.AddShard(store->get());
  const std::string path = options.state_dir + "/file";
  std::filesystem::create_directory(path);
  const absl::Status failed = run_files.ShardRestored(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(failed)) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("file.new to " + path));
  EXPECT_FALSE(run_files.all_restored());
  std::filesystem::remove(path);
  EXPECT_TRUE(run_files.ShardRestored(0).ok());
  EXPECT_TRUE(run_files.all_restored());
  EXPECT_TRUE(std::filesystem::is_regular_file(path));
}

}  // namespace
}  // namespace pushpull
