// Two Server objects of two ps tasks in one process, connected by unix sockets. Tests what only
// happens when a task is not in the coordinator's process.
#include "ps_server/runtime/server.h"

#include <atomic>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/train_dir.h"
#include "common/wire/error_detail.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/protocol_version.h"
#include "common/wire/security/peer_secret.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/failing_reads.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/raw_call.h"
#include "tests/testkit/warning_sink.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(60);

// A clone in a separate thread that trains over gRPC.
class GrpcClone {
 public:
  GrpcClone(const JobSpec* job, std::string ps, uint32_t worker_id, ToyGradientSource::Hook hook)
      : job_(job), source_(&job->layout, 2, std::move(hook)) {
    PsSession::Options options;
    options.worker_id = worker_id;
    options.num_replicas = 2;
    options.peer_name = absl::StrCat("test clone ", worker_id);
    options.peer_deadline = absl::Seconds(20);  // a server that vanishes must not block the test
    session_ = std::make_unique<PsSession>(
        options, [](const std::string& address) { return MakeGrpcPsClient(address); }, &clock_,
        nullptr);
    thread_ = std::thread([this, ps = std::move(ps)] { status_ = Run(ps); });
  }
  ~GrpcClone() {
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
      if (trainer_ != nullptr) trainer_->Stop();
    }
    session_->Stop();
    if (thread_.joinable()) thread_.join();
  }
  absl::Status Join() {
    thread_.join();
    return status_;
  }

 private:
  absl::Status Run(const std::string& ps) {
    PP_RETURN_IF_ERROR(session_->Connect({ps}));
    CloneTrainer trainer(session_.get(), &source_, &job_->layout, &clock_,
                         [](const CloneReport&) {});
    {
      absl::MutexLock lock(&mutex_);
      trainer_ = &trainer;
      if (stopped_) trainer.Stop();
    }
    const TrainerDeadline deadline(&trainer);
    const absl::Status status = trainer.Run();
    absl::MutexLock lock(&mutex_);
    trainer_ = nullptr;
    return status;
  }

  const JobSpec* const job_;
  SteadyClock clock_;
  ToyGradientSource source_;
  std::unique_ptr<PsSession> session_;
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  CloneTrainer* trainer_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status status_;
  std::thread thread_;
};

class TwoServersTest : public ::testing::Test {
 protected:
  ~TwoServersTest() override { clones_.clear(); }

  ServerOptions OptionsOf(int task, int64_t num_steps) {
    ServerOptions options;
    options.config = MakeTinyConfig(absl::StrCat("num_steps: ", num_steps));
    options.train_dir = folder_.path() + "/train";
    options.tasks = 2;
    options.task_index = task;
    for (int i = 0; i < 2; ++i) {
      options.cluster.push_back(absl::StrCat("unix:", folder_.path(), "/ps", i));
    }
    options.listen = options.cluster[task];
    options.state_dir = folder_.path() + "/state";
    options.lease = absl::Seconds(5);
    return options;
  }

  void Start(int64_t num_steps, ToyGradientSource::Hook hook = nullptr) {
    for (int task = 0; task < 2; ++task) {
      auto server = Server::Create(OptionsOf(task, num_steps), &files_, &clock_);
      ASSERT_TRUE(server.ok()) << server.status();
      servers_.push_back(*std::move(server));
    }
    for (uint32_t k = 0; k < 2; ++k) {
      clones_.push_back(std::make_unique<GrpcClone>(
          &servers_[0]->job(), servers_[0]->addresses()[0], k, k == 0 ? hook : nullptr));
    }
  }

  bool AwaitVersion(uint64_t version) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (servers_[0]->Status().version() < version) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(5));
    }
    return true;
  }

  // Waits until task 0 says that it waits for something with these words.
  bool AwaitWait(const std::string& words) {
    const absl::Time deadline = absl::Now() + kPatience;
    while (!absl::StrContains(servers_[0]->Status().waiting_for(), words)) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(20));
    }
    return true;
  }

  // Does what the main of each task does at the end, for all tasks at the same time.
  std::vector<absl::Status> AwaitEnds() {
    std::vector<absl::Status> ends(2, absl::DeadlineExceededError("no end"));
    std::vector<std::thread> mains;
    for (int task = 0; task < 2; ++task) {
      mains.emplace_back([this, task, &ends] {
        const std::optional<absl::Status> end = servers_[task]->WaitForEnd(kPatience);
        if (!end.has_value()) return;
        servers_[task]->Stop(*end);
        ends[task] = *end;
      });
    }
    for (std::thread& main : mains) main.join();
    return ends;
  }

  TransportOptions SecretOfTheTasks() {
    TransportOptions options;
    options.peer_secret = PeerSecret::Read(folder_.path() + "/train/peer_secret").value();
    return options;
  }

  std::vector<std::string> StateFiles() {
    return files_.List(folder_.path() + "/state").value_or(std::vector<std::string>());
  }

  TestFolder folder_;
  PosixFileSystem files_;
  SteadyClock clock_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::unique_ptr<GrpcClone>> clones_;
};

TEST_F(TwoServersTest, BothEndWhenTrainingIsDone) {
  Start(20);
  const std::vector<absl::Status> ends = AwaitEnds();
  EXPECT_TRUE(ends[0].ok()) << ends[0];
  EXPECT_TRUE(ends[1].ok()) << ends[1];
  EXPECT_TRUE(servers_[1]->end_wanted()) << "nobody but task 0 could tell it to end";
  EXPECT_FALSE(servers_[0]->end_wanted()) << "--exit_when_done=false";
  for (const auto& clone : clones_) EXPECT_TRUE(clone->Join().ok());
  EXPECT_TRUE(Checkpoint::Open(files_, folder_.path() + "/train", 20).ok());
  EXPECT_TRUE(StateFiles().empty()) << "the last checkpoint makes the state files superfluous";
}

TEST_F(TwoServersTest, AStartThatVerifiesAnswersAndEndsIfItIsToldTo) {
  Start(20);
  AwaitEnds();
  clones_.clear();
  servers_.clear();
  ServerOptions options = OptionsOf(0, 20);
  bool stopped = false;
  absl::Status told;
  options.stop_requested = [&stopped] { return stopped; };
  FailingReads hooked(&files_);
  hooked.Fail(FailingReads::What::kRead, ".safetensors", absl::OkStatus(), 1);
  hooked.AtFailure([&] {
    told = MakeGrpcPsClient(options.listen)->GetStatus({}, kPatience).status();
    stopped = true;
  });
  const absl::Status end = Server::Create(options, &hooked, &clock_).status();
  EXPECT_TRUE(absl::IsCancelled(end)) << end;
  EXPECT_TRUE(absl::StrContains(end.message(), "was being read")) << end;
  EXPECT_EQ(GetErrorDetail(told).kind(), ps::ErrorDetail::NOT_READY) << told;
  EXPECT_TRUE(absl::StrContains(told.message(), "it opens its checkpoint")) << told;
}

TEST_F(TwoServersTest, DrainingEitherTaskDrainsTheJob) {
  for (const int drained : {0, 1}) {
    Start(1000000);
    ASSERT_TRUE(AwaitVersion(5));
    servers_[drained]->Drain();
    const std::vector<absl::Status> ends = AwaitEnds();
    for (const absl::Status& end : ends) {
      EXPECT_TRUE(absl::IsCancelled(end)) << end;
      EXPECT_EQ(GetErrorDetail(end).kind(), ps::ErrorDetail::UNKNOWN) << end;
    }
    const ps::StatusReply status = servers_[0]->Status();
    EXPECT_GE(status.version(), 5);
    EXPECT_EQ(status.durable_step(), status.version())
        << "every applied step must be in a checkpoint";
    EXPECT_TRUE(
        Checkpoint::Open(files_, folder_.path() + "/train", static_cast<int64_t>(status.version()))
            .ok());
    clones_.clear();
    servers_.clear();
  }
}

TEST_F(TwoServersTest, AFailureEndsBothTasksWithItsReason) {
  Start(1000000, [](uint64_t position, uint32_t, GradientResult* result, absl::Span<float>) {
    if (position > 5) result->loss = std::numeric_limits<double>::quiet_NaN();
  });
  const std::vector<absl::Status> ends = AwaitEnds();
  EXPECT_EQ(GetErrorDetail(ends[1]).kind(), ps::ErrorDetail::STOPPED) << ends[1];
  EXPECT_TRUE(absl::StrContains(ends[1].message(), "non-finite")) << ends[1];
  EXPECT_FALSE(ends[0].ok());
  for (const auto& clone : clones_) EXPECT_FALSE(clone->Join().ok());
}

// No coordinator can publish a checkpoint, so the task keeps its mapped state.
TEST_F(TwoServersTest, ATaskDrainedWithoutItsCoordinatorEnds) {
  Start(1000000);
  ASSERT_TRUE(AwaitVersion(3));
  clones_.clear();
  servers_[0].reset();  // the coordinator is killed
  servers_[1]->Drain();
  const std::optional<absl::Status> end = servers_[1]->WaitForEnd(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(absl::IsCancelled(*end)) << *end;
  servers_[1]->Stop(*end);
  EXPECT_EQ(StateFiles().size(), 2);
}

TEST_F(TwoServersTest, ATaskThatWaitsForItsCoordinatorCanBeStopped) {
  ServerOptions options = OptionsOf(1, 10);
  std::atomic<int> asked{0};
  options.stop_requested = [&asked] { return ++asked > 1; };
  const absl::Status status = Server::Create(std::move(options), &files_, &clock_).status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

// Readiness probes rely on this, at --health_port and at the address of each task: a task serves
// once its shard is recovered, the coordinator once all shards are.
TEST_F(TwoServersTest, ServesOnlyAfterRecovery) {
  std::atomic<bool> serving[2] = {false, false};
  const auto start = [&](int task) {
    ServerOptions options = OptionsOf(task, 1000000);
    options.on_serving = [&serving, task] { serving[task].store(true); };
    auto server = Server::Create(std::move(options), &files_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    servers_.push_back(*std::move(server));
  };
  start(0);
  // The coordinator has written its epoch and waits for task 1.
  const auto waiting = [this] {
    return ReadEpoch(files_, folder_.path() + "/train").value_or(0) > 0;
  };
  const absl::Time deadline = absl::Now() + kPatience;
  while (!waiting() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
  ASSERT_TRUE(waiting());
  EXPECT_FALSE(serving[0].load());
  EXPECT_EQ(Health(servers_[0]->addresses()[0], "ps.ParameterServer"), 2);
  start(1);
  while (!(serving[0].load() && serving[1].load()) && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_TRUE(serving[0].load());
  EXPECT_TRUE(serving[1].load());
  for (const auto& server : servers_) {
    EXPECT_EQ(Health(server->addresses()[0], "ps.ParameterServer"), 1) << server->addresses()[0];
  }
}

TEST_F(TwoServersTest, OnlyItsCoordinatorEndsATask) {
  Start(1000000);
  ASSERT_TRUE(AwaitVersion(3));
  const auto client = MakeGrpcPsClient(servers_[1]->addresses()[0], SecretOfTheTasks());
  const auto state = client->GetShardState({}, kPatience);
  ASSERT_TRUE(state.ok()) << state.status();
  ps::EndTaskRequest request;
  request.set_run_id(std::string(16, 'x'));
  request.set_epoch(1000);
  request.set_boot_id(state->boot_id());
  EXPECT_EQ(GetErrorDetail(client->EndTask(request, kPatience).status()).kind(),
            ps::ErrorDetail::WRONG_RUN);
  request.set_run_id(servers_[0]->Status().run_id());
  request.set_epoch(0);
  EXPECT_EQ(GetErrorDetail(client->EndTask(request, kPatience).status()).kind(),
            ps::ErrorDetail::EPOCH_CHANGED);
  request.set_epoch(1000);
  request.set_boot_id(state->boot_id() + 1);
  EXPECT_TRUE(absl::IsUnavailable(client->EndTask(request, kPatience).status()))
      << "the call was meant for an earlier process of the task";
  const auto coordinator = MakeGrpcPsClient(servers_[0]->addresses()[0], SecretOfTheTasks());
  EXPECT_TRUE(absl::IsFailedPrecondition(coordinator->EndTask(request, kPatience).status()));
  EXPECT_FALSE(servers_[0]->WaitForEnd(absl::ZeroDuration()).has_value());
  EXPECT_FALSE(servers_[1]->WaitForEnd(absl::ZeroDuration()).has_value());
}

TEST_F(TwoServersTest, OnlyTheCoordinatorGivesOrdersToShards) {
  Start(1000000);
  ASSERT_TRUE(AwaitVersion(3));
  const ps::StatusReply before = servers_[0]->Status();
  ps::RestoreRequest restore;
  restore.set_run_id(before.run_id());
  restore.set_epoch(~uint64_t{0});
  ps::ApplyRequest apply;
  apply.set_run_id(before.run_id());
  apply.set_epoch(before.epoch());
  ps::SnapshotRequest snapshot;
  snapshot.set_run_id(before.run_id());
  snapshot.set_epoch(before.epoch());
  ps::EndTaskRequest end;
  end.set_run_id(before.run_id());
  end.set_epoch(before.epoch());
  for (const int task : {0, 1}) {
    const auto stranger = MakeGrpcPsClient(servers_[task]->addresses()[0]);
    const auto state = stranger->GetShardState({}, kPatience);
    ASSERT_TRUE(state.ok()) << state.status();
    end.set_boot_id(state->boot_id());
    for (const absl::Status& status : {stranger->Restore(restore, kPatience).status(),
                                       stranger->MeasureNorm(apply, kPatience).status(),
                                       stranger->Apply(apply, kPatience).status(),
                                       stranger->Snapshot(snapshot, kPatience).status(),
                                       stranger->EndTask(end, kPatience).status()}) {
      EXPECT_TRUE(absl::IsPermissionDenied(status)) << "task " << task << ": " << status;
    }
  }
  // Not even the coordinator may raise a shard's epoch beyond every possible epoch.
  const auto coordinator = MakeGrpcPsClient(servers_[1]->addresses()[0], SecretOfTheTasks());
  const absl::Status implausible = coordinator->Restore(restore, kPatience).status();
  EXPECT_TRUE(absl::IsInvalidArgument(implausible)) << implausible;
  ASSERT_TRUE(AwaitVersion(servers_[0]->Status().version() + 5)) << "training must continue";
  EXPECT_EQ(servers_[0]->Status().epoch(), before.epoch());
}

TEST_F(TwoServersTest, ATaskOfAnotherJobNamesTheDifference) {
  auto first = Server::Create(OptionsOf(0, 10), &files_, &clock_);
  ASSERT_TRUE(first.ok()) << first.status();
  servers_.push_back(*std::move(first));
  ServerOptions other_number = OptionsOf(1, 10);
  other_number.tasks = 3;
  other_number.cluster.push_back(absl::StrCat("unix:", folder_.path(), "/ps2"));
  ServerOptions other_model = OptionsOf(1, 10);
  other_model.config.mutable_model()->mutable_classifier()->set_num_classes(77);
  for (const ServerOptions& options : {other_number, other_model}) {
    const absl::Status status = Server::Create(options, &files_, &clock_).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat(
                    "ps task 0 at ", options.cluster[0],
                    " trains another model or has 2 tasks, this task 1 was told ", options.tasks)));
  }
}

TEST_F(TwoServersTest, ATaskOfAnotherBuildIsRefused) {
  // Like task 0, but of a build with another protocol.
  class OtherBuild final : public FakePsHandler {
   public:
    explicit OtherBuild(const JobSpec& job) {
      job_.set_protocol_version(kProtocolVersion + 1);
      job_.set_run_id(std::string(16, 'r'));
      job_.set_tasks(2);
      job_.set_pipeline_config(job.config_text);
      job_.set_layout_signature(job.layout.signature());
    }
    void GetJob(const ps::JobRequest&, Done<ps::JobReply> done) override { done(job_); }

   private:
    ps::JobReply job_;
  };
  const ServerOptions options = OptionsOf(1, 10);
  OtherBuild task_0(JobSpec::Create(options.config, options.sync, 2));
  const auto server = StartGrpcPsServer(options.cluster[0], &task_0);
  ASSERT_TRUE(server.ok()) << server.status();
  const absl::Status status = Server::Create(options, &files_, &clock_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("ps task 0 at ", options.cluster[0],
                                     " speaks protocol version ", kProtocolVersion + 1)));
}

// Each task updates a part of the variables: two learning rates in one model would go unnoticed.
TEST_F(TwoServersTest, ATaskWithOtherSettingsNamesTheField) {
  auto first = Server::Create(OptionsOf(0, 10), &files_, &clock_);
  ASSERT_TRUE(first.ok()) << first.status();
  servers_.push_back(*std::move(first));
  ServerOptions other_rate = OptionsOf(1, 10);
  other_rate.config = MakeTinyConfig(
      "optimizer { momentum_optimizer { learning_rate { constant_learning_rate { "
      "learning_rate: 0.25 } } } }");
  ServerOptions other_mode = OptionsOf(1, 10);
  other_mode.sync = false;
  for (const auto& [options, field] : {std::pair(other_rate, "learning_rate: 0.1 -> 0.25"),
                                       std::pair(other_mode, "sync_replicas: true -> false")}) {
    const absl::Status status = Server::Create(options, &files_, &clock_).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(field));
    EXPECT_THAT(std::string(status.message()), HasSubstr("ps task 0 at " + options.cluster[0]));
  }
  ServerOptions harmless = OptionsOf(1, 77);
  harmless.config.mutable_eval_config()->set_num_examples(5);
  EXPECT_EQ(Server::Create(harmless, &files_, &clock_).status(), absl::OkStatus());
}

// Task 0 may be killed alone and be started again with an edited config.
TEST_F(TwoServersTest, ATaskEndsWhenTask0ReturnsWithOtherSettings) {
  Start(1'000'000);
  ASSERT_TRUE(AwaitVersion(3));
  clones_.clear();
  const auto restart_edited = [this](int task) {
    servers_[task].reset();
    ServerOptions options = OptionsOf(task, 1'000'000);
    options.config = MakeTinyConfig(
        "optimizer { momentum_optimizer { learning_rate { constant_learning_rate { "
        "learning_rate: 0.25 } } } }");
    auto server = Server::Create(std::move(options), &files_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    servers_[task] = *std::move(server);
  };
  restart_edited(0);
  const std::optional<absl::Status> end = servers_[1]->WaitForEnd(kPatience);
  ASSERT_TRUE(end.has_value()) << "two learning rates in one model";
  EXPECT_EQ(GetErrorDetail(*end).kind(), ps::ErrorDetail::JOB_CHANGED) << *end;
  EXPECT_THAT(std::string(end->message()), HasSubstr("learning_rate: 0.25 -> 0.1"));
  servers_[1]->Stop(*end);
  restart_edited(1);
  EXPECT_TRUE(AwaitVersion(3)) << "the steps in the memory of both tasks are kept";
}

TEST_F(TwoServersTest, TasksWithDifferentSecretsRefuseEachOther) {
  ServerOptions options = OptionsOf(1, 10);
  options.peer_secret_file = folder_.path() + "/secret";
  auto first = Server::Create(OptionsOf(0, 10), &files_, &clock_);
  ASSERT_TRUE(first.ok()) << first.status();
  servers_.push_back(*std::move(first));
  // The secret file is missing, then too short, then different from that of task 0.
  absl::Status status = Server::Create(options, &files_, &clock_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  ASSERT_TRUE(WriteFileAtomically(files_, options.peer_secret_file, "short").ok());
  status = Server::Create(options, &files_, &clock_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), options.peer_secret_file)) << status;
  ASSERT_TRUE(
      WriteFileAtomically(files_, options.peer_secret_file, "the secret of another job").ok());
  auto second = Server::Create(options, &files_, &clock_);
  ASSERT_TRUE(second.ok()) << second.status();
  servers_.push_back(*std::move(second));
  EXPECT_TRUE(AwaitWait("shard 1 of 2 ("));
}

// For example on the local disks of two machines: each task would write its part of a checkpoint
// in a folder that the other one does not see.
TEST_F(TwoServersTest, TasksWithDifferentTrainDirsDoNotTrain) {
  const std::string secret = folder_.path() + "/secret";
  ASSERT_TRUE(WriteFileAtomically(files_, secret, "the secret of all tasks").ok());
  for (const int task : {0, 1}) {
    ServerOptions options = OptionsOf(task, 10);
    options.peer_secret_file = secret;
    absl::StrAppend(&options.train_dir, task);
    auto server = Server::Create(std::move(options), &files_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    servers_.push_back(*std::move(server));
  }
  EXPECT_TRUE(AwaitWait(absl::StrCat("train_dir ", folder_.path(), "/train1 of ps task 1")));
  std::filesystem::create_directory_symlink(folder_.path() + "/train0", folder_.path() + "/train1");
  const auto serves = [this] {
    return Health(servers_[0]->addresses()[0], "ps.ParameterServer") == 1;
  };
  const absl::Time deadline = absl::Now() + kPatience;
  while (!serves() && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_TRUE(serves()) << "the shared folder was mounted late";
}

TEST_F(TwoServersTest, ABadSecretIsNotReplaced) {
  // The other tasks may have read it too.
  ASSERT_EQ(files_.MakeDirectory(folder_.path() + "/train"), absl::OkStatus());
  const std::string path = folder_.path() + "/train/peer_secret";
  ASSERT_EQ(WriteFileAtomically(files_, path, "short"), absl::OkStatus());
  const absl::Status status = Server::Create(OptionsOf(0, 10), &files_, &clock_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_EQ(ReadWholeFile(files_, path).value(), "short");
}

TEST_F(TwoServersTest, AnAddressInUseLeavesNoTrainDir) {
  const ServerOptions options = OptionsOf(0, 10);
  FakePsHandler handler;
  const auto other = StartGrpcPsServer(options.listen, &handler);
  ASSERT_TRUE(other.ok()) << other.status();
  const absl::Status status = Server::Create(options, &files_, &clock_).status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_TRUE(absl::IsNotFound(files_.GetInfo(options.train_dir).status()));
}

TEST_F(TwoServersTest, AFullDiskThatPreventsTheSecretMayPass) {
  const ServerOptions options = OptionsOf(0, 10);
  int secrets = 0;
  for (int64_t call = 0;; ++call) {
    MemoryFileSystem files;
    files.SetFault(FileFault{FileFault::Kind::kDiskFull, call});
    const absl::Status status = Server::Create(options, &files, &clock_).status();
    if (files.calls() <= call) break;
    // The secret is read from the machine's files, so it is missing even if it could be written.
    const bool is_missing = absl::StrContains(status.message(), "--peer_secret_file");
    EXPECT_TRUE(is_missing || IsPassing(status)) << "call " << call << ": " << status;
    if (!is_missing && absl::StrContains(status.message(), "peer_secret")) ++secrets;
    ASSERT_LT(call, 100);
  }
  EXPECT_GE(secrets, 4) << "create, write, fsync, close and rename";
}

// Task 0 does not see the state on the machine of another task.
TEST_F(TwoServersTest, ATaskNamesTheStateOfAnotherNumberOfTasksOnItsMachine) {
  Start(1'000'000);
  ASSERT_TRUE(AwaitVersion(5));
  clones_.clear();
  servers_.clear();  // as SIGKILL does
  ASSERT_EQ(StateFiles().size(), 2u);
  ASSERT_EQ(files_.RemoveFile(absl::StrCat(folder_.path(), "/state/", StateFiles()[0])),
            absl::OkStatus());
  for (const int task : {0, 1}) {
    ServerOptions options = OptionsOf(task, 1'000'000);
    options.tasks = 3;
    options.cluster.push_back(absl::StrCat("unix:", folder_.path(), "/ps2"));
    if (task == 0) options.state_dir = folder_.path() + "/state of task 0";
    const WarningSink sink;
    auto server = Server::Create(std::move(options), &files_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    EXPECT_EQ(sink.Count("-1-of-2 holds step "), task);
    servers_.push_back(*std::move(server));
  }
}

TEST_F(TwoServersTest, ATaskStopsWaitingForItsCoordinatorInTime) {
  // A clock that advances with each reading, as if every call took long.
  class SlowClock final : public Clock {
   public:
    absl::Duration Now() const override { return now_ += absl::Seconds(20); }
    void Sleep(absl::Duration duration) override { now_ += duration; }

   private:
    mutable absl::Duration now_ = absl::ZeroDuration();
  };
  SlowClock clock;
  ServerOptions options = OptionsOf(1, 10);
  const absl::Status status = Server::Create(std::move(options), &files_, &clock).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_LT(clock.Now(), absl::Minutes(8));
}

// The main destroys a server early, for example when the monitoring port is in use.
TEST(ServerTest, MayBeDestroyedAtAnyTimeOfItsStart) {
  PosixFileSystem files;
  SteadyClock clock;
  for (int i = 0; i < 60; ++i) {
    TestFolder folder;
    ServerOptions options;
    options.config = MakeTinyConfig("num_steps: 10");
    options.train_dir = folder.path() + "/train";
    options.listen = absl::StrCat("unix:", folder.path(), "/ps");
    auto server = Server::Create(std::move(options), &files, &clock);
    ASSERT_TRUE(server.ok()) << server.status();
    absl::SleepFor(i * absl::Microseconds(100));
  }
}

}  // namespace
}  // namespace pushpull
