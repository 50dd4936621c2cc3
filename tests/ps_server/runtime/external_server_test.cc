// Whole servers that train an external model: clones declare its variables over unix sockets, and
// later servers continue from the checkpoints.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/train_dir.h"
#include "common/model/initializers.h"
#include "common/model/model_layout.h"
#include "common/wire/error_detail.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "ps_server/runtime/checkpointer.h"
#include "ps_server/runtime/server.h"
#include "tests/testkit/declaration_parts.h"
#include "tests/testkit/fake_clock.h"
#include "tests/testkit/job/test_job.h"

namespace pushpull {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr absl::Duration kExternalPatience = absl::Seconds(60);

class ExternalServerTest : public ::testing::Test {
 protected:
  ~ExternalServerTest() override {
    stop_.store(true);
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  ServerOptions OptionsOf(int task, int tasks, int64_t num_steps) {
    ServerOptions options;
    options.config = MakeTinyConfig(
        absl::StrCat("num_steps: ", num_steps, " save_checkpoints_steps: 5 ", train_config_));
    options.config.mutable_model()->mutable_external()->set_name("toy");
    options.train_dir = train_dir();
    options.tasks = tasks;
    options.task_index = task;
    for (int i = 0; i < tasks && task >= 0; ++i) options.cluster.push_back(Address(i));
    options.listen = Address(std::max(task, 0));
    options.lease = absl::Seconds(5);
    options.num_replicas = 2;
    options.stop_requested = [this] { return stop_.load(); };
    return options;
  }
  std::string Address(int task) const { return absl::StrCat("unix:", folder_.path(), "/ps", task); }
  std::string train_dir() const { return folder_.path() + "/train"; }

  // Creates the servers in threads, since Create blocks until the variables are declared.
  void Start(std::vector<ServerOptions> options) {
    servers_.clear();
    threads_.clear();
    servers_.resize(options.size());
    statuses_.assign(options.size(), absl::OkStatus());
    for (size_t i = 0; i < options.size(); ++i) {
      threads_.emplace_back([this, i, options = options[i]] {
        auto server = Server::Create(options, &files_, &clock_);
        statuses_[i] = server.status();
        if (server.ok()) servers_[i] = *std::move(server);
      });
    }
  }
  void AwaitServers() {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    for (const absl::Status& status : statuses_) ASSERT_TRUE(status.ok()) << status;
  }
  absl::Status DeclareAt(const std::vector<float>& values, uint32_t worker_id = 0) {
    return Declare(MakeGrpcPsClient(Address(0)).get(), layout_, values,
                   {.worker_id = worker_id, .session = 1 + worker_id});
  }

  // Trains to the end with two clones, ends all servers, and returns the clones' statuses.
  std::vector<absl::Status> Train() {
    std::vector<absl::Status> clones(2);
    std::vector<std::thread> threads;
    for (uint32_t k = 0; k < 2; ++k) threads.emplace_back([&, k] { clones[k] = RunClone(k); });
    std::vector<std::thread> mains;
    for (const auto& server : servers_) {
      mains.emplace_back([&server] {
        const std::optional<absl::Status> end = server->WaitForEnd(kExternalPatience);
        ASSERT_TRUE(end.has_value());
        EXPECT_TRUE(end->ok()) << *end;
        server->Stop(*end);
      });
    }
    for (std::thread& thread : mains) thread.join();
    for (std::thread& thread : threads) thread.join();
    servers_.clear();
    return clones;
  }
  absl::Status RunClone(uint32_t k) {
    ToyGradientSource source(&layout_, 2);
    PsSession::Options options;
    options.worker_id = k;
    options.num_replicas = 2;
    options.peer_name = absl::StrCat("clone ", k);
    options.identity.session = 1 + k;
    options.peer_deadline = absl::Seconds(20);
    PsSession session(
        options, [](const std::string& address) { return MakeGrpcPsClient(address); }, &clock_,
        nullptr);
    PP_RETURN_IF_ERROR(session.Connect({Address(0)}));
    CloneTrainer trainer(&session, &source, &layout_, &clock_, [](const CloneReport&) {});
    const TrainerDeadline deadline(&trainer);
    return trainer.Run();
  }
  // Weights, momentum and EMA of a checkpoint.
  std::vector<float> State(uint64_t step) {
    const auto checkpoint = Checkpoint::Open(files_, train_dir(), step);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    if (!checkpoint.ok()) return {};
    const int64_t n = layout_.total_elements();
    std::vector<float> state(3 * n);
    EXPECT_TRUE((*checkpoint)->ReadWeights(layout_, {0, n}, state.data()).ok());
    EXPECT_TRUE((*checkpoint)->ReadSlot(layout_, "Momentum", {0, n}, state.data() + n).ok());
    EXPECT_TRUE((*checkpoint)->ReadEma(layout_, {0, n}, state.data() + 2 * n).ok());
    return state;
  }
  // The values with which a run of the same layout begins that nobody declares.
  std::vector<float> DrawnValues() const {
    std::vector<float> values(layout_.total_elements());
    InitializeVariables(layout_, /*seed=*/1, absl::MakeSpan(values));
    return values;
  }

  VariableLayout layout_ = MakeToyLayout();
  TestFolder folder_;
  PosixFileSystem files_;
  SteadyClock clock_;
  std::string train_config_;
  std::atomic<bool> stop_{false};
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<absl::Status> statuses_;
  std::vector<std::thread> threads_;
};

// The same layout, the same initial values and the same gradients give the same bits, whether the
// server has the layout built in or a clone declares it.
TEST_F(ExternalServerTest, TrainsTheBitsOfTheSameModelBuiltIn) {
  std::vector<float> previous;
  for (const char* const optimizer :
       {"optimizer { use_moving_average: true }",
        "optimizer { use_moving_average: true } freeze_variables: 'toy/conv' bias_grad_multiplier: "
        "2",
        "optimizer { use_moving_average: true } add_regularization_loss: false"}) {
    RemoveRecursively(files_, train_dir()).IgnoreError();
    train_config_ = optimizer;
    TestServerOptions built_in;
    built_in.train_config = train_config_;
    // TestServer's layout is fixed, so train_config is applied here as the server applies it.
    const VariableLayout applied =
        BuildExternalLayout(MakeTinyConfig(train_config_).train_config(), layout_);
    built_in.layout = &applied;
    const std::vector<float> expected = TrainedState(2, built_in);
    ASSERT_FALSE(expected.empty());
    EXPECT_NE(expected, previous) << "the config has to make a difference";
    previous = expected;
    Start({OptionsOf(-1, 1, 20)});
    ASSERT_TRUE(DeclareAt(DrawnValues()).ok());
    AwaitServers();
    for (const absl::Status& clone : Train()) EXPECT_TRUE(clone.ok()) << clone;
    EXPECT_EQ(State(20), expected) << optimizer;
  }
}

TEST_F(ExternalServerTest, ARestartNeedsNoClone) {
  Start({OptionsOf(-1, 1, 20)});
  ASSERT_TRUE(DeclareAt(ValuesFor(layout_, 3)).ok());
  AwaitServers();
  const std::string run_id = servers_[0]->Status().run_id();
  // From checkpoint 0, which is the declaration.
  Start({OptionsOf(-1, 1, 20)});
  AwaitServers();
  EXPECT_EQ(servers_[0]->Status().run_id(), run_id);
  EXPECT_EQ(servers_[0]->job().layout.signature(), layout_.signature());
  const auto client = MakeGrpcPsClient(Address(0));
  const absl::Time deadline = absl::Now() + kExternalPatience;
  absl::StatusOr<ps::JobReply> job = client->GetJob({}, kExternalPatience);
  while (!job.ok() && absl::Now() < deadline) {  // the first epoch has not begun
    absl::SleepFor(absl::Milliseconds(5));
    job = client->GetJob({}, kExternalPatience);
  }
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->awaits_variables());
  ASSERT_EQ(job->variables_size(), layout_.num_variables());
  EXPECT_EQ(job->variables(2).l2_weight(), 0.01f);
  for (const absl::Status& clone : Train()) EXPECT_TRUE(clone.ok()) << clone;
  const std::vector<float> expected = State(20);
  // From a later checkpoint, with more steps to go. It still knows the declared attributes.
  Start({OptionsOf(-1, 1, 40)});
  AwaitServers();
  for (const absl::Status& clone : Train()) EXPECT_TRUE(clone.ok()) << clone;
  const auto manifest = ReadManifest(files_, train_dir(), 40);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE(manifest->declared);
  EXPECT_EQ(manifest->variables[2].l2_weight, 0.01f);
  EXPECT_EQ(manifest->variables[1].moving_average_decay, 0.9f);
  EXPECT_NE(State(40), expected);
}

TEST_F(ExternalServerTest, TheTasksOfTwoProcessesTrainIt) {
  Start({OptionsOf(0, 2, 20), OptionsOf(1, 2, 20)});
  // Two clones declare at once; whoever comes first decides.
  std::vector<absl::Status> declared(2);
  std::vector<std::thread> clones;
  for (uint32_t k = 0; k < 2; ++k) {
    clones.emplace_back([&, k] { declared[k] = DeclareAt(DrawnValues(), k); });
  }
  for (std::thread& clone : clones) clone.join();
  for (const absl::Status& status : declared) EXPECT_TRUE(status.ok()) << status;
  AwaitServers();
  EXPECT_EQ(servers_[1]->job().layout.signature(), layout_.signature());
  for (const absl::Status& clone : Train()) EXPECT_TRUE(clone.ok()) << clone;
  const auto checkpoint = Checkpoint::Open(files_, train_dir(), 20);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ((*checkpoint)->manifest().files.size(), 2);
  // The second process is late, and the run has ended.
  Start({OptionsOf(0, 2, 40), OptionsOf(1, 2, 40)});
  AwaitServers();
  for (const absl::Status& clone : Train()) EXPECT_TRUE(clone.ok()) << clone;
}

// The second task tells the first one the names of 15,000 tensors, which are more than 1 MiB.
TEST_F(ExternalServerTest, TheTasksOfTwoProcessesSaveManyVariables) {
  std::vector<VariableSpec> variables(10'000);
  for (size_t i = 0; i < variables.size(); ++i) {
    variables[i].name = absl::StrFormat("%060d", i);
    variables[i].shape = {1};
  }
  layout_ = VariableLayout::Create(std::move(variables)).value();
  train_config_ = "optimizer { use_moving_average: true }";
  Start({OptionsOf(0, 2, 2), OptionsOf(1, 2, 2)});
  ASSERT_TRUE(DeclareAt(ValuesFor(layout_, 3)).ok());
  AwaitServers();
  for (const absl::Status& clone : Train()) EXPECT_TRUE(clone.ok()) << clone;
  const auto checkpoint = Checkpoint::Open(files_, train_dir(), 2);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  ASSERT_EQ((*checkpoint)->manifest().files.size(), 2);
  const int64_t size_bytes = MakeSnapshotReply((*checkpoint)->manifest().files[1]).ByteSizeLong();
  EXPECT_GT(size_bytes, TransportOptions().max_message_bytes);
}

TEST_F(ExternalServerTest, ATaskWithoutItsCoordinatorSeesThatTheRunIsFinished) {
  Start({OptionsOf(0, 2, 20), OptionsOf(1, 2, 20)});
  ASSERT_TRUE(DeclareAt(DrawnValues()).ok());
  AwaitServers();
  for (const absl::Status& clone : Train()) EXPECT_TRUE(clone.ok()) << clone;
  ServerOptions late = OptionsOf(1, 2, 20);
  late.lease = absl::Milliseconds(300);
  ServerOptions back = late;
  back.from_checkpoint = true;
  int asked = 0;
  back.stop_requested = [&asked] { return ++asked == 4; };
  const absl::Status waited = Server::Create(back, &files_, &clock_).status();
  EXPECT_TRUE(absl::IsCancelled(waited)) << "the run goes back, so it is not finished: " << waited;
  Start({late});
  AwaitServers();
  const std::optional<absl::Status> end = servers_[0]->WaitForEnd(kExternalPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_TRUE(end->ok()) << *end;
}

TEST_F(ExternalServerTest, ASignalEndsTheWait) {
  Start({OptionsOf(0, 2, 20), OptionsOf(1, 2, 20)});
  const auto client = MakeGrpcPsClient(Address(0));
  const absl::Time deadline = absl::Now() + kExternalPatience;
  while (!client->GetJob({}, kExternalPatience).ok() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  EXPECT_TRUE(client->GetJob({}, kExternalPatience)->awaits_variables());
  stop_.store(true);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  for (const absl::Status& status : statuses_) EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(absl::IsNotFound(files_.GetInfo(train_dir()).status())) << "nothing was in it";
}

// Somebody may start the clones a day later. Task 0 answers meanwhile, so it is not given up.
TEST_F(ExternalServerTest, ATaskWaitsForTheVariablesAsLongAsItTakes) {
  Start({OptionsOf(0, 2, 20)});
  FakeClock clock;
  ServerOptions options = OptionsOf(1, 2, 20);
  options.stop_requested = [&clock, begin = clock.Now()] {
    clock.Advance(absl::Minutes(1));
    return clock.Now() - begin >= absl::Hours(1);
  };
  const auto client = MakeGrpcPsClient(Address(0));
  const absl::Time deadline = absl::Now() + kExternalPatience;
  while (!client->GetJob({}, kExternalPatience).ok() && absl::Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  const absl::Status status = Server::Create(options, &files_, &clock).status();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
}

TEST_F(ExternalServerTest, RefusesATrainDirOfAnotherModel) {
  ServerOptions options = OptionsOf(-1, 1, 20);
  options.config.mutable_model()->CopyFrom(MakeTinyConfig("").model());
  {
    const auto server = Server::Create(options, &files_, &clock_);
    ASSERT_TRUE(server.ok()) << server.status();
    (*server)->Drain();
    (*server)->Stop(*(*server)->WaitForEnd(kExternalPatience));
  }
  CheckpointManifest manifest;
  manifest.run_id = ReadRunId(files_, train_dir())->value();
  manifest.files.push_back({"shard-00000-of-00001.safetensors", 1, std::string(64, 'b'), {}});
  ASSERT_TRUE(files_.MakeDirectory(train_dir() + "/ckpt-00000000").ok());
  ASSERT_TRUE(WriteFileAtomically(files_, train_dir() + "/ckpt-00000000/MANIFEST.json",
                                  SerializeManifest(manifest))
                  .ok());
  const absl::Status status = Server::Create(OptionsOf(-1, 1, 20), &files_, &clock_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not of an external model"));
}

TEST_F(ExternalServerTest, DoesNotGoBackToACheckpointThatIsNotThere) {
  ServerOptions options = OptionsOf(-1, 1, 20);
  options.from_checkpoint = true;
  options.stop_requested = [] { return true; };  // ends the wait for a declaration
  const absl::Status newest = Server::Create(options, &files_, &clock_).status();
  EXPECT_TRUE(absl::IsNotFound(newest)) << newest;
  EXPECT_THAT(std::string(newest.message()), HasSubstr("start without --from_checkpoint"));
  options.from_step = 3;
  const absl::Status step = Server::Create(options, &files_, &clock_).status();
  EXPECT_TRUE(absl::IsNotFound(step)) << step;
  EXPECT_THAT(std::string(step.message()), HasSubstr("no checkpoint of step 3"));
}

TEST_F(ExternalServerTest, DoesNotStartAfreshWithoutItsCheckpoints) {
  Start({OptionsOf(0, 2, 20)});
  ASSERT_TRUE(DeclareAt(DrawnValues()).ok());
  AwaitServers();  // the coordinator waits for task 1
  ASSERT_TRUE(RemoveRecursively(files_, train_dir() + "/ckpt-00000000").ok());
  ServerOptions second = OptionsOf(1, 2, 20);
  const auto server = Server::Create(second, &files_, &clock_);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::optional<absl::Status> end = servers_[0]->WaitForEnd(kExternalPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_FALSE(end->ok());
  // The message depends on whether the coordinator had already looked for checkpoints.
  EXPECT_THAT(std::string(end->message()),
              AnyOf(HasSubstr("ckpt-00000000"), HasSubstr("only in its checkpoints")));
}

TEST_F(ExternalServerTest, ACloneOfATrainingJobNeedsNotDeclare) {
  Start({OptionsOf(-1, 1, 20)});
  ASSERT_TRUE(DeclareAt(ValuesFor(layout_, 3)).ok());
  AwaitServers();
  const auto client = MakeGrpcPsClient(Address(0));
  DeclaringClone late;
  late.run_id = servers_[0]->Status().run_id();
  const auto reply = client->DeclareVariables(
      DeclarationParts(layout_, ValuesFor(layout_, 4), late)[0], kExternalPatience);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->declared());
  EXPECT_EQ(reply->elements(), 216 + 8 + 3500 + 70);
  late.run_id = std::string(16, 'x');
  EXPECT_EQ(GetErrorDetail(
                client
                    ->DeclareVariables(DeclarationParts(layout_, ValuesFor(layout_, 4), late)[0],
                                       kExternalPatience)
                    .status())
                .kind(),
            ps::ErrorDetail::WRONG_RUN);
}

}  // namespace
}  // namespace pushpull
