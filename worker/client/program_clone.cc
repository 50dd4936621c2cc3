// Tested by tests/worker/client/grpc/pushpull_client_test.cc.
// Tested by tests/worker/client/grpc/client_failures_test.cc.
#include "worker/client/program_clone.h"

#include <algorithm>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "common/base/descriptor_limit.h"
#include "common/base/num_cores.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/cluster/resolve_cluster.h"
#include "common/config/pipeline_config.h"
#include "worker/client/clone_identity.h"
#include "worker/client/declare_variables.h"
#include "worker/client/grpc_clients.h"

namespace pushpull {
namespace {

// Threads that update the local weights. They run while the program waits for its next batch, and
// memory bounds them.
constexpr int kUpdateThreads = 4;

// The most files that a clone of one ps task opens are 8, and each further task takes 2. The rest
// is for reconnecting and for what the program opens meanwhile.
constexpr int kDescriptors = 16;
constexpr int kDescriptorsPerTask = 2;

// How long the destructor waits for the server's answers, such as that to the last push.
constexpr absl::Duration kLastAnswers = absl::Seconds(2);

ProgramCloneOptions WithPeerName(ProgramCloneOptions options) {
  if (options.session.peer_name.empty()) {
    options.session.peer_name = ClonePeerName(options.session.worker_id);
  }
  return options;
}

// The strings of messages are UTF-8; a call with another one would fail without a reason.
absl::Status CheckUtf8(absl::string_view what, const std::string& text) {
  if (IsUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " \"", absl::CHexEscape(text), "\" is not UTF-8"));
}

}  // namespace

ProgramClone::ProgramClone(ProgramCloneOptions options)
    : options_(WithPeerName(std::move(options))) {}

ProgramClone::~ProgramClone() {
  Stop();
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return end_.has_value(); };
    if (!changed_.Await(&mutex_, ended, kLastAnswers)) session_->Cancel();
  }
  thread_.join();
}

absl::Status ProgramClone::CheckOptions() const {
  if (options_.ps.empty()) {
    return absl::InvalidArgumentError("`ps` names no address; expected \"host:port\"");
  }
  PP_RETURN_IF_ERROR(CheckPsAddresses({options_.ps, "`ps`"}));
  const PsSession::Options& session = options_.session;
  PP_RETURN_IF_ERROR(CheckUtf8("peer_name", session.peer_name));
  if (session.num_replicas == 0) {
    return absl::InvalidArgumentError("num_replicas is 0, expected the number of clones");
  }
  if (session.worker_id >= session.num_replicas) {
    return absl::InvalidArgumentError(absl::StrCat("worker_id is ", session.worker_id,
                                                   ", expected a number below num_replicas, ",
                                                   session.num_replicas));
  }
  return CheckExposure(options_.security, options_.ps);
}

absl::Status ProgramClone::CheckRunning() const {
  absl::MutexLock lock(&mutex_);
  return stopped_ ? absl::CancelledError("this clone was told to stop") : absl::OkStatus();
}

absl::Status ProgramClone::Connect() {
  PP_RETURN_IF_ERROR(CheckRunning());
  if (connected_) return absl::FailedPreconditionError("this clone is already connected");
  PP_RETURN_IF_ERROR(CheckOptions());
  // gRPC ends the process if it lacks descriptors at its start, and otherwise waits for some.
  PP_RETURN_IF_ERROR(CheckFreeDescriptors(kDescriptors + kDescriptorsPerTask *
                                                             static_cast<int>(options_.ps.size())));
  const uint32_t id = options_.session.worker_id;
  PP_ASSIGN_OR_RETURN(PsSession::ClientFactory clients,
                      MakeGrpcClients(options_.security, options_.shared_memory, {id, id}));
  PsSession::Options session_options = options_.session;
  session_options.security = options_.security;
  auto session =
      std::make_unique<PsSession>(std::move(session_options), std::move(clients), &clock_,
                                  [this](const std::string& peer) { NoteWaiting(peer); });
  {
    absl::MutexLock lock(&mutex_);
    session_.swap(session);
    if (stopped_) session_->Cancel();
  }
  PP_RETURN_IF_ERROR(session_->Connect(options_.ps));
  NoteWaiting("");
  connected_ = true;
  return absl::OkStatus();
}

absl::Status ProgramClone::Declare(const VariableLayout& layout, const float* const* values) {
  if (!session_->job().awaits_variables()) return absl::OkStatus();
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    if (values != nullptr && values[i] != nullptr) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the job awaits its variables, and there are no initial values of ",
                     layout.variables()[i].name));
  }
  PP_RETURN_IF_ERROR(DeclareVariables(session_.get(), layout, values, &clock_));
  NoteWaiting("");
  return absl::OkStatus();
}

absl::StatusOr<GradientSource*> ProgramClone::WithLocalSteps(GradientSource* source) {
  PP_ASSIGN_OR_RETURN(
      const config::TrainEvalPipelineConfig config,
      ParsePipelineConfig(session_->job().pipeline_config(), "the server's pipeline config"));
  if (!HasLocalSteps(config.train_config())) return source;
  // The attributes are the server's: those of the program may differ.
  PP_ASSIGN_OR_RETURN(job_layout_, FetchVariables(session_.get()));
  if (job_layout_->total_elements() != layout_->total_elements()) return source;  // see Register
  update_threads_ = std::make_unique<ThreadPool>(std::min(NumCores(), kUpdateThreads));
  local_steps_ = std::make_unique<LocalStepsSource>(
      source, &*job_layout_, config.train_config(), update_threads_.get(),
      [session = session_.get()] { return session->CheckWanted(); });
  return local_steps_.get();
}

absl::Status ProgramClone::Start(std::vector<VariableSpec> variables, const float* const* values,
                                 uint64_t num_samples, ps::Arithmetic arithmetic) {
  PP_RETURN_IF_ERROR(CheckRunning());
  if (!connected_) return absl::FailedPreconditionError("this clone is not connected yet");
  if (trainer_ != nullptr) return absl::FailedPreconditionError("this clone was already started");
  if (variables.empty()) return absl::InvalidArgumentError("the model has no variables");
  for (const VariableSpec& variable : variables) {
    PP_RETURN_IF_ERROR(CheckUtf8("the variable's name", variable.name));
  }
  PP_RETURN_IF_ERROR(CheckUtf8("device", arithmetic.device()));
  PP_RETURN_IF_ERROR(CheckUtf8("rounding", arithmetic.rounding()));
  PP_ASSIGN_OR_RETURN(VariableLayout layout, VariableLayout::Create(std::move(variables)));
  PP_RETURN_IF_ERROR(Declare(layout, values));
  layout_ = std::move(layout);
  session_->set_arithmetic(std::move(arithmetic));
  CloneTrainerOptions training;
  training.gradient_codec = options_.gradient_codec;
  training.pull_last_weights = true;
  training.leaves_when_aborted = true;  // the program has given a batch up
  training.on_registered = [this] {
    absl::MutexLock lock(&mutex_);
    registered_ = true;
    report_.waiting_for.clear();
    changed_.NotifyAll();
  };
  auto source = std::make_unique<ProgramGradientSource>(num_samples);
  PP_ASSIGN_OR_RETURN(GradientSource* const trained, WithLocalSteps(source.get()));
  auto trainer = std::make_unique<CloneTrainer>(
      session_.get(), trained, &*layout_, &clock_,
      [this](const CloneReport& report) { NoteReport(report); }, training);
  absl::MutexLock lock(&mutex_);
  source_ = std::move(source);
  trainer_ = std::move(trainer);
  if (stopped_) {
    trainer_->Stop();
    source_->Stop();
  }
  thread_ = std::thread([this] { RunTrainer(); });
  const auto started = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return registered_ || stopped_ || end_.has_value();
  };
  changed_.Await(&mutex_, started, absl::InfiniteDuration());
  if (stopped_) return absl::CancelledError("this clone was told to stop");
  return registered_ ? absl::OkStatus() : *end_;
}

void ProgramClone::RunTrainer() {
  const absl::Status status = trainer_->Run();
  source_->End(status);
  absl::MutexLock lock(&mutex_);
  end_ = status;
  changed_.NotifyAll();
}

void ProgramClone::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  if (session_ != nullptr) {
    // A registered clone may have pushed a gradient whose answer is under way.
    registered_ ? session_->Stop() : session_->Cancel();
  }
  if (trainer_ != nullptr) trainer_->Stop();
  if (source_ != nullptr) source_->Stop();
  changed_.NotifyAll();
}

CloneReport ProgramClone::progress() const {
  absl::MutexLock lock(&mutex_);
  return report_;
}

void ProgramClone::NoteReport(const CloneReport& report) {
  absl::MutexLock lock(&mutex_);
  report_ = report;
}

void ProgramClone::NoteWaiting(const std::string& waiting_for) {
  absl::MutexLock lock(&mutex_);
  report_.waiting_for = waiting_for;
}

}  // namespace pushpull
