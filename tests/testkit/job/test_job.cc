#include "tests/testkit/job/test_job.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "tests/testkit/job/audited_gradient_source.h"
#include "tests/testkit/job/step_gate.h"

namespace pushpull {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

std::string AddressOf(int task) { return absl::StrCat("task ", task); }

}  // namespace

config::TrainEvalPipelineConfig MakeTinyConfig(const std::string& train_config,
                                               const std::string& pipeline_config) {
  const std::string base =
      "model { classifier { num_classes: 3 "
      "image_resizer { fixed_shape_resizer { height: 32 width: 32 } } "
      "feature_extractor { type: 'mobilenet_v2' depth_multiplier: 0.1 min_depth: 8 } } } "
      "train_config { batch_size: 31 num_steps: 20 sync_replicas: true optimizer { "
      "momentum_optimizer { learning_rate { constant_learning_rate { learning_rate: 0.1 } } "
      "momentum_optimizer_value: 0.9 } } }";
  config::TrainEvalPipelineConfig config;
  for (const std::string& text :
       {base, absl::StrCat("train_config { ", train_config, " }"), pipeline_config}) {
    CHECK(google::protobuf::TextFormat::MergeFromString(text, &config)) << text;
  }
  return config;
}

TestServer::TestServer(const TestFolder& folder, TestServerOptions options)
    : folder_(folder.path()), options_(std::move(options)) {
  config::TrainEvalPipelineConfig config =
      MakeTinyConfig(options_.train_config, options_.pipeline_config);
  if (options_.num_epochs > 0) {
    config.mutable_train_input_reader()->set_num_epochs(options_.num_epochs);
  }
  job_ = std::make_unique<JobSpec>(JobSpec::Create(config, options_.sync, options_.tasks));
  if (options_.toy_layout) {
    job_->layout =
        options_.layout != nullptr ? *options_.layout : MakeToyLayout(options_.large_elements);
    job_->sharding = Sharding(job_->layout.total_elements(), options_.tasks);
  }
  audit_ = std::make_unique<ContributionAudit>(job_->sharding, options_.sync,
                                               ExactElementsOf(job_->layout));
  for (int task = 0; task < options_.tasks; ++task) {
    relays_.push_back(std::make_unique<RelayHandler>(audit_.get()));
  }
}

TestServer::~TestServer() {
  Kill();
  for (const std::string& problem : audit_->problems()) ADD_FAILURE() << problem;
}

absl::Status TestServer::Start() {
  ServerCoreOptions options;
  options.train_dir = train_dir();
  options.num_tasks = options_.tasks;
  options.num_replicas = options_.num_replicas;
  if (options_.mapped) options.state_dir = folder_ + "/state";
  options.from_checkpoint = options_.from_checkpoint;
  options.from_step = options_.from_step;
  options.lease = options_.lease;
  options.trace = options_.trace;
  const absl::Time deadline = absl::Now() + kPatience;
  for (;;) {
    FileSystem* const files = options_.files != nullptr ? options_.files : &files_;
    auto core = ServerCore::Open(*job_, options, files, &clock_);
    if (core.ok()) {
      absl::MutexLock lock(&core_mutex_);
      core_ = *std::move(core);
      break;
    }
    // A pull from the killed server may hold its state for a moment longer.
    const bool held = absl::StrContains(core.status().message(), "in use by another ps_server");
    if (!held || absl::Now() > deadline) return core.status();
    absl::SleepFor(absl::Milliseconds(5));
  }
  std::vector<std::string> addresses;
  for (int task = 0; task < options_.tasks; ++task) {
    addresses.push_back(AddressOf(task));
    relays_[task]->Connect(core_->handler(task));
  }
  core_->Start(std::move(addresses), {}, [] {});
  return absl::OkStatus();
}

void TestServer::DestroyCore() {
  std::unique_ptr<ServerCore> core;
  absl::MutexLock lock(&core_mutex_);
  core.swap(core_);
}

void TestServer::Kill() {
  for (const auto& relay : relays_) relay->Disconnect();
  DestroyCore();
}

absl::Status TestServer::WaitForEnd() {
  const absl::Duration patience = has_given_up() ? absl::ZeroDuration() : kPatience;
  const std::optional<absl::Status> end = core_->WaitForEnd(patience);
  if (!end.has_value()) GiveUp();
  return end.value_or(absl::DeadlineExceededError("the job did not end"));
}

absl::Status TestServer::WaitAndClose() {
  const absl::Status end = WaitForEnd();
  if (!has_given_up()) core_->AnnounceEnd(end);
  for (const auto& relay : relays_) relay->Disconnect();
  core_->Close();
  DestroyCore();
  return end;
}

absl::Status TestServer::DrainAndClose() {
  core_->Drain();
  return WaitAndClose();
}

bool TestServer::Await(const std::function<bool(const ps::StatusReply&)>& condition) {
  const absl::Duration deadline = clock_.Now() + kPatience;
  while (!condition(Status())) {
    if (has_given_up()) return false;
    if (clock_.Now() > deadline) GiveUp();
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

ps::StatusReply TestServer::Status() {
  absl::ReaderMutexLock lock(&core_mutex_);
  return core_ == nullptr ? ps::StatusReply() : core_->Status();
}

void TestServer::GiveUp() {
  given_up_.store(true);
  absl::MutexLock lock(&clones_mutex_);
  for (TestClone* const clone : clones_) clone->Stop();
}

void TestServer::Attach(TestClone* clone) {
  absl::MutexLock lock(&clones_mutex_);
  clones_.insert(clone);
  if (has_given_up()) clone->Stop();
}

void TestServer::Detach(TestClone* clone) {
  absl::MutexLock lock(&clones_mutex_);
  clones_.erase(clone);
}

std::unique_ptr<PsClient> TestServer::MakeClient(int task, FaultHook hook) {
  return MakeInProcessPsClient(relays_[task].get(), AddressOf(task), std::move(hook));
}

PsSession::ClientFactory TestServer::factory(FaultHook hook) {
  return [this, hook = std::move(hook)](const std::string& address) {
    int task = 0;
    CHECK(absl::SimpleAtoi(address.substr(5), &task)) << address;
    return MakeClient(task, hook);
  };
}

std::vector<float> TestServer::Checkpointed(uint64_t step) {
  const auto checkpoint = Checkpoint::Open(files_, train_dir(), step);
  if (!checkpoint.ok()) {
    LOG(ERROR) << checkpoint.status();
    return {};
  }
  const int64_t n = job_->layout.total_elements();
  const int slots = job_->optimizer.num_slots();
  const bool has_ema = job_->optimizer.has_ema;
  std::vector<float> state(n * (1 + slots + has_ema));
  absl::Status read = (*checkpoint)->ReadWeights(job_->layout, {0, n}, state.data());
  for (int slot = 0; slot < slots && read.ok(); ++slot) {
    read = (*checkpoint)
               ->ReadSlot(job_->layout, job_->optimizer.slot_name(slot), {0, n},
                          state.data() + n * (1 + slot));
  }
  if (read.ok() && has_ema) {
    read = (*checkpoint)->ReadEma(job_->layout, {0, n}, state.data() + n * (1 + slots));
  }
  if (read.ok()) return state;
  LOG(ERROR) << read;
  return {};
}

TestClone::TestClone(TestServer* server, TestCloneOptions options)
    : server_(server), options_(std::move(options)) {
  server_->Attach(this);
  thread_ = std::thread([this] { status_ = Run(); });
}

TestClone::~TestClone() {
  if (!thread_.joinable()) return;  // Join was called before, and the server may be gone
  Stop();
  thread_.join();
  server_->Detach(this);
}

absl::Status TestClone::Join() {
  bool ended;
  {
    absl::MutexLock lock(&mutex_);
    ended = mutex_.AwaitWithTimeout(absl::Condition(&ended_), 2 * kPatience);
  }
  if (!ended) {
    ADD_FAILURE() << "clone " << options_.worker_id << " did not end";
    server_->GiveUp();
  }
  thread_.join();
  server_->Detach(this);
  return status_;
}

void TestClone::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  if (session_ != nullptr) session_->Stop();
  if (trainer_ != nullptr) trainer_->Stop();
}

std::vector<CloneReport> TestClone::reports() {
  absl::MutexLock lock(&mutex_);
  return reports_;
}

absl::Status TestClone::Run() {
  Clock* const clock = options_.clock != nullptr ? options_.clock : &server_->clock();
  PsSession::Options options;
  options.worker_id = options_.worker_id;
  options.num_replicas = options_.num_replicas;
  options.peer_name = options_.peer_name;
  options.identity.session = options_.session;
  options.peer_deadline = options_.peer_deadline;
  options.rpc_timeout = options_.rpc_timeout;
  options.weight_codec = options_.weight_codec;
  options.server_clock = options_.server_clock;
  PsSession session(options, server_->factory(options_.hook), clock, nullptr);
  {
    absl::MutexLock lock(&mutex_);
    session_ = &session;
    if (stopped_) session.Stop();
  }
  const absl::Status status = Train(&session, clock);
  absl::MutexLock lock(&mutex_);
  session_ = nullptr;
  ended_ = true;
  return status;
}

absl::Status TestClone::Train(PsSession* session, Clock* clock) {
  PP_RETURN_IF_ERROR(session->Connect({AddressOf(0)}));
  const VariableLayout* layout =
      options_.layout != nullptr ? options_.layout : &server_->job().layout;
  AuditedGradientSource source(&server_->audit(), options_.worker_id, layout, options_.num_replicas,
                               server_->job().config.train_config(), options_.gradient_hook,
                               [session] { return session->CheckWanted(); });
  source.set_num_images(options_.num_images);
  CloneTrainer trainer(session, &source, layout, clock,
                       [this](const CloneReport& report) {
                         absl::MutexLock lock(&mutex_);
                         reports_.push_back(report);
                       },
                       {options_.gradient_codec, options_.instruments});
  {
    absl::MutexLock lock(&mutex_);
    trainer_ = &trainer;
    if (stopped_) trainer.Stop();
  }
  const absl::Status status = trainer.Run();
  absl::MutexLock lock(&mutex_);
  trainer_ = nullptr;
  return status;
}

TrainerDeadline::TrainerDeadline(CloneTrainer* trainer) {
  thread_ = std::thread([this, trainer] {
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&over_), kPatience)) return;
    LOG(ERROR) << "the trainer did not end in time";
    trainer->Stop();
  });
}

TrainerDeadline::~TrainerDeadline() {
  {
    absl::MutexLock lock(&mutex_);
    over_ = true;
  }
  thread_.join();
}

std::vector<absl::Status> TrainWithClones(TestServer* server, uint32_t n,
                                          const TestCloneOptions& common) {
  std::vector<std::unique_ptr<TestClone>> clones;
  for (uint32_t k = 0; k < n; ++k) {
    TestCloneOptions options = common;
    options.worker_id = k;
    options.num_replicas = n;
    clones.push_back(std::make_unique<TestClone>(server, std::move(options)));
  }
  std::vector<absl::Status> statuses;
  for (const auto& clone : clones) statuses.push_back(clone->Join());
  return statuses;
}

absl::Status TrainAndDrainInStep(TestServer* server, uint64_t step) {
  StepGate gate;
  TestClone held(server,
                 {.worker_id = 0, .num_replicas = 2, .gradient_hook = gate.HookAt(step - 1)});
  TestClone other(server, {.worker_id = 1, .num_replicas = 2});
  EXPECT_TRUE(gate.AwaitReached());
  server->core().Drain();
  gate.Open();
  return server->WaitAndClose();
}

std::vector<float> TrainedState(uint32_t clones, TestServerOptions server_options,
                                const TestCloneOptions& clone_options) {
  TestFolder folder;
  TestServer server(folder, std::move(server_options));
  const absl::Status started = server.Start();
  EXPECT_TRUE(started.ok()) << started;
  if (!started.ok()) return {};
  std::vector<absl::Status> statuses;
  std::thread training([&] { statuses = TrainWithClones(&server, clones, clone_options); });
  const absl::Status end = server.WaitAndClose();
  EXPECT_TRUE(end.ok()) << end;
  training.join();
  for (size_t k = 0; k < statuses.size(); ++k) {
    EXPECT_TRUE(statuses[k].ok()) << "clone " << k << ": " << statuses[k];
  }
  EXPECT_GT(server.audit().compared_chunks(), 0);
  return server.Checkpointed(server.job().limits.num_steps);
}

std::vector<float> StateAfterTakeover(TestServerOptions server_options, uint64_t position) {
  TestFolder folder;
  server_options.lease = absl::Milliseconds(500);
  TestServer server(folder, std::move(server_options));
  const absl::Status started = server.Start();
  EXPECT_TRUE(started.ok()) << started;
  if (!started.ok()) return {};
  TestClone stays(&server, {.worker_id = 0, .num_replicas = 2});
  StepGate gate;
  TestClone leaves(&server,
                   {.worker_id = 1, .num_replicas = 2, .gradient_hook = gate.HookAt(position)});
  EXPECT_TRUE(gate.AwaitReached());
  leaves.Stop();
  gate.Open();
  EXPECT_TRUE(absl::IsCancelled(leaves.Join()));
  const absl::Status end = server.WaitAndClose();
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_TRUE(stays.Join().ok());
  return server.Checkpointed(server.job().limits.num_steps);
}

}  // namespace pushpull
