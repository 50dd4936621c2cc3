// The declaration of an external model by clones that call the handler in this process.
#include "ps_server/runtime/declaration_phase.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/train_dir.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"
#include "ps_server/runtime/job_spec.h"
#include "tests/testkit/declaration_parts.h"
#include "tests/testkit/in_process_ps_client.h"
#include "tests/testkit/job/test_job.h"
#include "tests/testkit/memory_file_system.h"
#include "tests/testkit/one_shard_checkpoint.h"

namespace pushpull {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kDeclarationTimeout = absl::Seconds(30);
constexpr char kTrainDir[] = "/train";

config::TrainEvalPipelineConfig ExternalConfig(const std::string& name = "toy") {
  config::TrainEvalPipelineConfig config = MakeTinyConfig("optimizer { use_moving_average: true }");
  config.mutable_model()->mutable_external()->set_name(name);
  return config;
}

// A declaration phase on a file system in memory, with its Run in another thread.
class DeclarationPhaseTest : public ::testing::Test {
 protected:
  ~DeclarationPhaseTest() override { Kill(); }

  absl::Status Open(int tasks = 1, absl::Duration lease = absl::Seconds(10),
                    absl::Duration disk_patience = absl::ZeroDuration()) {
    DeclarationPhaseOptions options;
    options.config = ExternalConfig();
    options.train_dir = kTrainDir;
    options.tasks = tasks;
    options.lease = lease;
    options.disk_patience = disk_patience;
    auto phase = DeclarationPhase::Open(std::move(options), &files_, &clock_);
    if (!phase.ok()) return phase.status();
    phase_ = *std::move(phase);
    stop_.store(false);
    phase_->SetAddresses({"here"});
    run_ = std::thread([this] { end_ = phase_->Run([this] { return stop_.load(); }); });
    return absl::OkStatus();
  }
  // Ends like SIGKILL but for the thread, which has to end: the phase has changed nothing by then.
  void Kill() {
    stop_.store(true);
    if (run_.joinable()) run_.join();
    phase_ = nullptr;
  }
  const absl::StatusOr<VariableLayout>& AwaitEnd() {
    if (run_.joinable()) run_.join();
    return end_;
  }
  std::unique_ptr<PsClient> Client() { return MakeInProcessPsClient(phase_->handler(), "here"); }
  ps::JobReply Job() {
    auto job = Client()->GetJob({}, kDeclarationTimeout);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : ps::JobReply();
  }
  absl::StatusOr<std::optional<VariableLayout>> ReadDeclared(const std::string& name = "toy") {
    return ReadDeclaredVariables(files_, kTrainDir, ExternalConfig(name), 1);
  }
  std::vector<float> Weights(const Checkpoint& checkpoint) {
    std::vector<float> weights(layout_.total_elements());
    EXPECT_TRUE(
        checkpoint.ReadWeights(layout_, {0, layout_.total_elements()}, weights.data()).ok());
    return weights;
  }

  const VariableLayout layout_ = MakeToyLayout();
  const std::vector<float> values_ = ValuesFor(layout_, 1);
  MemoryFileSystem files_;
  SteadyClock clock_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<DeclarationPhase> phase_;
  std::thread run_;
  absl::StatusOr<VariableLayout> end_;
};

TEST_F(DeclarationPhaseTest, PublishesTheDeclaredVariablesAsCheckpoint0) {
  for (const int tasks : {1, 3}) {
    files_.Reboot(Survival::kNothing, 0);
    ASSERT_TRUE(RemoveRecursively(files_, kTrainDir).ok());
    ASSERT_TRUE(Open(tasks).ok());
    const ps::JobReply job = Job();
    EXPECT_TRUE(job.awaits_variables());
    EXPECT_EQ(job.protocol_version(), kProtocolVersion);
    EXPECT_EQ(job.run_id().size(), 16);
    EXPECT_EQ(job.variables_size(), 0);
    EXPECT_EQ(job.tasks(), tasks);
    EXPECT_EQ(job.num_steps(), 20);
    EXPECT_THAT(job.pipeline_config(), HasSubstr("external"));
    EXPECT_THAT(job.addresses(), ElementsAre("here"));
    ASSERT_TRUE(Declare(Client().get(), layout_, values_, {}).ok());
    ASSERT_TRUE(AwaitEnd().ok()) << AwaitEnd().status();
    EXPECT_EQ(AwaitEnd()->DescribeDifference(layout_), "");

    const auto checkpoint = Checkpoint::Open(files_, kTrainDir, 0);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_EQ(Weights(**checkpoint), values_);
    EXPECT_EQ((*checkpoint)->manifest().files.size(), tasks);
    std::vector<float> ema(layout_.total_elements());
    ASSERT_TRUE((*checkpoint)->ReadEma(layout_, {0, layout_.total_elements()}, ema.data()).ok());
    EXPECT_EQ(ema, values_);
    std::vector<float> slot(layout_.total_elements(), 1.0f);
    ASSERT_TRUE((*checkpoint)
                    ->ReadSlot(layout_, "Momentum", {0, layout_.total_elements()}, slot.data())
                    .ok());
    EXPECT_EQ(slot, std::vector<float>(layout_.total_elements(), 0.0f));
    const auto declared = ReadDeclared();
    ASSERT_TRUE(declared.ok() && declared->has_value()) << declared.status();
    for (int64_t i = 0; i < layout_.num_variables(); ++i) {
      EXPECT_EQ((*declared)->variables()[i].l2_weight, layout_.variables()[i].l2_weight);
      EXPECT_EQ((*declared)->variables()[i].moving_average_decay,
                layout_.variables()[i].moving_average_decay);
    }
    Kill();
  }
}

TEST_F(DeclarationPhaseTest, NothingButTheLockIsOnDiskBeforeTheDeclarationIsComplete) {
  ASSERT_TRUE(Open().ok());
  DeclaringClone clone;
  clone.run_id = Job().run_id();
  const auto parts = DeclarationParts(layout_, values_, clone);
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const auto reply = Client()->DeclareVariables(parts[i], kDeclarationTimeout);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_FALSE(reply->declared());
  }
  EXPECT_THAT(*files_.List(kTrainDir), ElementsAre("LOCK"));
  // The server is killed in the middle. The next one is another run, and knows nothing.
  Kill();
  EXPECT_TRUE(absl::IsCancelled(end_.status())) << end_.status();
  ASSERT_TRUE(ReadDeclared().ok());
  EXPECT_FALSE(ReadDeclared()->has_value());
  ASSERT_TRUE(Open().ok());
  EXPECT_NE(Job().run_id(), clone.run_id);
  EXPECT_EQ(
      GetErrorDetail(Client()->DeclareVariables(parts.back(), kDeclarationTimeout).status()).kind(),
      ps::ErrorDetail::WRONG_RUN);
  ASSERT_TRUE(Declare(Client().get(), layout_, values_, {}).ok());
  ASSERT_TRUE(AwaitEnd().ok()) << AwaitEnd().status();
}

// The power fails at each call that changes the disk. Either nothing is there, and the variables
// can be declared again, or the whole checkpoint.
TEST_F(DeclarationPhaseTest, ACrashLeavesNothingOrTheCheckpoint) {
  bool ended = false;
  int found = 0;
  for (int64_t call = 0; !ended; ++call) {
    for (const Survival survival : {Survival::kNothing, Survival::kEverything, Survival::kRandom}) {
      files_.SetFault(std::nullopt);
      if (files_.GetInfo(kTrainDir).ok()) {
        ASSERT_TRUE(RemoveRecursively(files_, kTrainDir).ok());
      }
      ASSERT_TRUE(Open(2).ok());
      FileFault crash;
      crash.kind = FileFault::Kind::kCrash;
      crash.call = call;
      files_.SetFault(crash);
      const absl::Status declared = Declare(Client().get(), layout_, values_, {});
      AwaitEnd();
      EXPECT_EQ(declared.ok(), end_.ok()) << declared << end_.status();
      ended = !files_.crashed();
      Kill();
      files_.Reboot(survival, 100 + call);
      const auto left = ReadDeclared();
      ASSERT_TRUE(left.ok()) << "call " << call << ": " << left.status();
      if (declared.ok()) {
        EXPECT_TRUE(left->has_value()) << "call " << call;
      }
      if (left->has_value()) {
        const auto checkpoint = OpenNewestCheckpoint(files_, kTrainDir, {"", &layout_});
        ASSERT_TRUE(checkpoint.ok()) << "call " << call << ": " << checkpoint.status();
        EXPECT_EQ(Weights(**checkpoint), values_);
        ++found;
      } else {
        ASSERT_TRUE(Open(2).ok());
        ASSERT_TRUE(Declare(Client().get(), layout_, values_, {}).ok());
        ASSERT_TRUE(AwaitEnd().ok()) << AwaitEnd().status();
      }
      Kill();
    }
    ASSERT_LT(call, 200);
  }
  EXPECT_GT(found, 3);
}

TEST_F(DeclarationPhaseTest, ADiskThatFailsEndsThePhaseWithItsError) {
  ASSERT_TRUE(Open().ok());
  files_.SetFault(FileFault{FileFault::Kind::kDiskFull, 5, /*lasting=*/true});
  const absl::Status declared = Declare(Client().get(), layout_, values_, {});
  EXPECT_EQ(GetErrorDetail(declared).kind(), ps::ErrorDetail::DRAINING) << declared;
  EXPECT_TRUE(absl::IsResourceExhausted(AwaitEnd().status())) << AwaitEnd().status();
  EXPECT_TRUE(IsPassing(AwaitEnd().status())) << AwaitEnd().status();
  files_.SetFault(std::nullopt);
  EXPECT_FALSE(ReadDeclared()->has_value());
}

TEST_F(DeclarationPhaseTest, ACallThatFailsLeavesNoPartOfTheCheckpoint) {
  bool ended = false;
  for (int64_t call = 0; !ended; ++call) {
    ASSERT_TRUE(Open(2).ok());
    files_.SetFault(FileFault{FileFault::Kind::kDiskFull, call});
    const absl::Status declared = Declare(Client().get(), layout_, values_, {});
    EXPECT_EQ(declared.ok(), AwaitEnd().ok()) << declared << AwaitEnd().status();
    EXPECT_TRUE(declared.ok() || GetErrorDetail(declared).kind() == ps::ErrorDetail::DRAINING)
        << "call " << call << ": " << declared;
    ended = files_.calls() <= call;
    files_.SetFault(std::nullopt);
    Kill();
    const absl::StatusOr<std::vector<std::string>> names = files_.List(kTrainDir);
    EXPECT_TRUE(names.ok() || !declared.ok()) << "call " << call;
    for (const std::string& name : names.value_or(std::vector<std::string>()))
      EXPECT_NE(name[0], '.') << "call " << call << ": " << name;
    ASSERT_TRUE(RemoveRecursively(files_, kTrainDir).ok());
    ASSERT_LT(call, 200);
  }
}

TEST_F(DeclarationPhaseTest, ADiskThatIsFullForAMomentOnlyDelaysTheDeclaration) {
  bool ended = false;
  for (int64_t call = 0; !ended; ++call) {
    ASSERT_TRUE(Open(2, absl::Seconds(10), absl::Minutes(2)).ok());
    files_.SetFault(FileFault{FileFault::Kind::kDiskFull, call});
    const absl::Status declared = Declare(Client().get(), layout_, values_, {});
    EXPECT_TRUE(declared.ok()) << "call " << call << ": " << declared;
    EXPECT_TRUE(AwaitEnd().ok()) << "call " << call << ": " << AwaitEnd().status();
    ended = files_.calls() <= call;
    files_.SetFault(std::nullopt);
    EXPECT_TRUE(ReadDeclared()->has_value()) << "call " << call;
    Kill();
    ASSERT_TRUE(RemoveRecursively(files_, kTrainDir).ok());
    ASSERT_LT(call, 200);
  }
}

TEST_F(DeclarationPhaseTest, ADrainEndsTheWaitForAFullDisk) {
  ASSERT_TRUE(Open(1, absl::Seconds(10), absl::Minutes(2)).ok());
  files_.SetFault(FileFault{FileFault::Kind::kDiskFull, 5, /*lasting=*/true});
  std::thread clone([this] {
    const absl::Status declared = Declare(Client().get(), layout_, values_, {});
    EXPECT_EQ(GetErrorDetail(declared).kind(), ps::ErrorDetail::DRAINING) << declared;
  });
  while (files_.calls() <= 5) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_TRUE(Client()->Drain({}, kDeclarationTimeout).ok());
  clone.join();
  EXPECT_EQ(AwaitEnd().status(), absl::CancelledError("drained"));
  files_.SetFault(std::nullopt);
}

TEST_F(DeclarationPhaseTest, TwoClonesDeclareAtOnce) {
  ASSERT_TRUE(Open().ok());
  const std::string run_id = Job().run_id();  // only the declaring phase answers GetJob here
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> clones;
  for (uint32_t k = 0; k < 2; ++k) {
    clones.emplace_back([this, k, &run_id, &statuses] {
      statuses[k] =
          Declare(Client().get(), layout_, ValuesFor(layout_, 10 + k),
                  {.run_id = run_id, .worker_id = k, .session = 1 + k, .part_elements = 17});
    });
  }
  for (std::thread& clone : clones) clone.join();
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  ASSERT_TRUE(AwaitEnd().ok()) << AwaitEnd().status();
  const std::vector<float> weights = Weights(**Checkpoint::Open(files_, kTrainDir, 0));
  EXPECT_TRUE(weights == ValuesFor(layout_, 10) || weights == ValuesFor(layout_, 11))
      << "the values must be those of one clone";
}

TEST_F(DeclarationPhaseTest, ACloneThatDiesWhileItDeclaresLosesItsTurn) {
  ASSERT_TRUE(Open(1, /*lease=*/absl::Milliseconds(200)).ok());
  DeclaringClone dies;
  dies.run_id = Job().run_id();
  dies.peer_name = "dies";
  const auto parts = DeclarationParts(layout_, ValuesFor(layout_, 3), dies);
  ASSERT_TRUE(Client()->DeclareVariables(parts[0], kDeclarationTimeout).ok());
  ASSERT_TRUE(Client()->DeclareVariables(parts[1], kDeclarationTimeout).ok());
  const auto status = Client()->GetStatus({}, kDeclarationTimeout);
  ASSERT_TRUE(status.ok());
  EXPECT_THAT(status->waiting_for(), HasSubstr("clone 0 (dies), which has declared 2000 of"));
  ASSERT_TRUE(Declare(Client().get(), layout_, values_, {.worker_id = 1, .session = 2}).ok());
  ASSERT_TRUE(AwaitEnd().ok()) << AwaitEnd().status();
  EXPECT_EQ(Weights(**Checkpoint::Open(files_, kTrainDir, 0)), values_);
}

TEST_F(DeclarationPhaseTest, AnswersOtherCallsWithNotReady) {
  ASSERT_TRUE(Open(2).ok());
  for (PsHandler* const handler : {phase_->handler(), phase_->handler_of_others()}) {
    const auto client = MakeInProcessPsClient(handler, "here");
    ps::PushChunk chunk;
    const auto push = client->StartPush(kDeclarationTimeout);
    push->Send(chunk, {}).IgnoreError();
    const auto sink = [](const ps::PullChunk&, size_t) -> absl::StatusOr<char*> { return nullptr; };
    for (const absl::Status& status :
         {client->Register({}, kDeclarationTimeout).status(),
          client->Heartbeat({}, kDeclarationTimeout).status(),
          client->Commit({}, kDeclarationTimeout).status(),
          client->Checkpoint({}, kDeclarationTimeout).status(),
          client->Evict({}, kDeclarationTimeout).status(),
          client->GetShardState({}, kDeclarationTimeout).status(),
          client->Apply({}, kDeclarationTimeout).status(), push->Finish().status(),
          client->Pull({}, kDeclarationTimeout, sink)}) {
      EXPECT_EQ(GetErrorDetail(status).kind(), ps::ErrorDetail::NOT_READY) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("external model"));
    }
  }
  const auto status = Client()->GetStatus({}, kDeclarationTimeout);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_THAT(status->waiting_for(), HasSubstr("a clone that declares the variables"));
  EXPECT_LT(status->seconds_since_checkpoint(), 0);
}

TEST_F(DeclarationPhaseTest, LaterCallsAreDeclaredAndTheJobIsNotReady) {
  ASSERT_TRUE(Open().ok());
  DeclaringClone late;
  late.run_id = Job().run_id();
  late.worker_id = 1;
  ASSERT_TRUE(Declare(Client().get(), layout_, values_, {}).ok());
  ASSERT_TRUE(AwaitEnd().ok()) << AwaitEnd().status();
  const auto reply = Client()->DeclareVariables(
      DeclarationParts(layout_, ValuesFor(layout_, 5), late)[0], kDeclarationTimeout);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->declared());
  EXPECT_EQ(GetErrorDetail(Client()->GetJob({}, kDeclarationTimeout).status()).kind(),
            ps::ErrorDetail::NOT_READY);
  EXPECT_EQ(GetErrorDetail(Client()->Drain({}, kDeclarationTimeout).status()).kind(),
            ps::ErrorDetail::NOT_READY)
      << "the next phase is told";
}

TEST_F(DeclarationPhaseTest, DrainEndsThePhase) {
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Client()->Drain({}, kDeclarationTimeout).ok());
  EXPECT_TRUE(absl::IsCancelled(AwaitEnd().status())) << AwaitEnd().status();
  EXPECT_THAT(*files_.List(kTrainDir), ElementsAre("LOCK"));
}

TEST_F(DeclarationPhaseTest, ASecondServerIsRefused) {
  ASSERT_TRUE(Open().ok());
  DeclarationPhaseOptions options;
  options.config = ExternalConfig();
  options.train_dir = kTrainDir;
  EXPECT_TRUE(absl::IsUnavailable(DeclarationPhase::Open(options, &files_, &clock_).status()));
}

TEST_F(DeclarationPhaseTest, RefusesNamesThatCheckpointsUse) {
  ASSERT_TRUE(Open().ok());
  for (const char* const suffix : {"Momentum", "ExponentialMovingAverage"}) {
    std::vector<VariableSpec> variables(2);
    variables[0].name = "a";
    variables[1].name = std::string("a/") + suffix;
    const VariableLayout layout = *VariableLayout::Create(variables);
    const absl::Status status = Declare(Client().get(), layout, ValuesFor(layout, 1), {});
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(variables[1].name));
  }
  std::vector<VariableSpec> variables(1);
  variables[0].name = "__metadata__";
  const VariableLayout layout = *VariableLayout::Create(variables);
  EXPECT_TRUE(absl::IsInvalidArgument(Declare(Client().get(), layout, ValuesFor(layout, 1), {})));
}

TEST_F(DeclarationPhaseTest, RefusesACheckpointOfAnotherModel) {
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Declare(Client().get(), layout_, values_, {}).ok());
  ASSERT_TRUE(AwaitEnd().ok()) << AwaitEnd().status();
  const absl::Status status = ReadDeclared("seq2seq").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("\"toy\""), HasSubstr("\"seq2seq\"")));
}

// Somebody has put a newer checkpoint of another run into the folder, or only that is left.
TEST_F(DeclarationPhaseTest, ReadsNoVariablesOfAnotherRun) {
  ASSERT_TRUE(Open().ok());
  ASSERT_TRUE(Declare(Client().get(), layout_, values_, {}).ok());
  ASSERT_TRUE(AwaitEnd().ok()) << AwaitEnd().status();
  ASSERT_TRUE(files_.MakeDirectory("/other").ok());
  const VariableLayout other = MakeToyLayout(/*large_elements=*/100);
  CheckpointManifest manifest;
  manifest.run_id = std::string(32, 'a');
  manifest.epoch = 99;
  manifest.step = 7;
  ASSERT_TRUE(PublishOneShard(files_, "/other", other, manifest, ValuesFor(other, 1)).ok());
  const std::string name = CheckpointName(manifest.step);
  ASSERT_TRUE(files_.Rename(JoinPath("/other", name), JoinPath(kTrainDir, name)).ok());
  const auto declared = ReadDeclared();
  ASSERT_TRUE(declared.ok() && declared->has_value()) << declared.status();
  EXPECT_EQ((*declared)->num_variables(), layout_.num_variables());
  const std::string first = CheckpointName(0);
  ASSERT_TRUE(files_.Rename(JoinPath(kTrainDir, first), JoinPath("/other", first)).ok());
  const absl::Status foreign = ReadDeclared().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(foreign)) << foreign;
  EXPECT_THAT(std::string(foreign.message()), HasSubstr("is of run aaaaaa"));
}

}  // namespace
}  // namespace pushpull
