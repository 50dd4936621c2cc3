#include "ps_server/runtime/server.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/train_dir.h"
#include "common/wire/error_detail.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/protocol_version.h"
#include "common/wire/security/peer_secret.h"
#include "ps_server/runtime/checkpointer.h"
#include "ps_server/runtime/finished_run.h"
#include "ps_server/runtime/shard_peer.h"
#include "ps_server/runtime/task_agreement.h"
#include "ps_server/transport/descriptor_budget.h"

namespace pushpull {
namespace {

constexpr absl::Duration kStopGrace = absl::Milliseconds(500);
constexpr absl::Duration kDrainTimeout = absl::Seconds(2);
constexpr absl::Duration kRestoreCheckTimeout = absl::Seconds(2);
// How long another task waits for the process of task 0, which may itself wait for a machine.
constexpr absl::Duration kCoordinatorPatience = absl::Minutes(5);
constexpr absl::Duration kSecretPatience = absl::Seconds(10);

// Adds to the error of a secret what ps tasks in several processes need. Leaves an error that may
// pass as it is.
absl::Status SecretError(const absl::Status& status) {
  if (IsPassing(status)) return status;
  return absl::FailedPreconditionError(
      absl::StrCat(status.message(),
                   "; ps tasks in several processes need TLS, one train_dir under one user, or "
                   "--peer_secret_file"));
}

absl::Status OtherRun() {
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::WRONG_RUN);
  return MakeError(detail, "another run has the address of ps task 0 now, and is not drained");
}

absl::Status OtherProcess() {
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::FENCED);
  return MakeError(detail, "another process has this ps task now, so the job is not drained");
}

}  // namespace

absl::StatusOr<std::string> TaskAddress(const std::string& first, int index) {
  if (index == 0) return first;
  if (absl::StartsWith(first, kUnixPrefix)) return absl::StrCat(first, ".", index);
  const size_t colon = first.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(first.substr(colon + 1), &port)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--listen=", first, " is not host:port or unix:/path"));
  }
  if (port == 0) return first;
  if (port + index > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--listen=", first, " leaves no port for task ",
                                                   index, "; choose a lower one"));
  }
  return absl::StrCat(first.substr(0, colon + 1), port + index);
}

Server::Server(ServerOptions options, FileSystem* files, Clock* clock)
    : options_(std::move(options)), files_(files), clock_(clock) {}

Server::~Server() {
  // The servers call into the core, and the threads of the core call the servers (SetServing).
  // Both must have stopped before either is destroyed.
  for (const auto& server : servers_) server->Stop(absl::ZeroDuration());
  if (core_ != nullptr) core_->StopThreads();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Create(ServerOptions options, FileSystem* files,
                                                       Clock* clock) {
  std::unique_ptr<Server> server(new Server(std::move(options), files, clock));
  PP_RETURN_IF_ERROR(server->Open());
  return server;
}

absl::Status Server::Open() {
  PP_ASSIGN_OR_RETURN(transport_.credentials,
                      TransportCredentials::Create(options_.security, {PeerRole::kPs}));
  if (transport_.credentials->encrypted()) transport_.max_connection_age = kTlsConnectionAge;
  for (int i = 0; i < NumTasksHere(); ++i) switches_.push_back(std::make_unique<SwitchHandler>());
  ServerCoreOptions core;
  static_cast<SharedServerOptions&>(core) = options_;
  PP_ASSIGN_OR_RETURN(JobSpec job,
                      FirstTask() == 0 ? FindJob() : FindJobOfCoordinator(&core.run_id));
  core.first_task = FirstTask();
  core.num_tasks = NumTasksHere();
  if (FirstTask() > 0) {
    core.on_restored = [this] { NoteServing(); };
    core.may_restore = [this, client = std::shared_ptr<PsClient>(ClientOf(options_.cluster[0]))] {
      return CheckRestore(client.get());
    };
    core.drain_job =
        [this, client = std::shared_ptr<PsClient>(ClientOf(options_.cluster[0])),
         at_own_address = std::shared_ptr<PsClient>(ClientOf(options_.cluster[FirstTask()])),
         run_id = core.run_id] { return DrainRun(client.get(), at_own_address.get(), run_id); };
    if (options_.trace_clock != nullptr) {
      clock_follower_ = std::make_unique<ClockFollower>(ClientOf(options_.cluster[0]), clock_,
                                                        options_.trace_clock);
    }
  }
  if (servers_.empty()) {
    for (const auto& handler : switches_) handler->Set(&starting_);
    PP_RETURN_IF_ERROR(Listen());
  }
  PP_ASSIGN_OR_RETURN(core_, ServerCore::Open(std::move(job), std::move(core), files_, clock_));
  // Comes before the orders of the coordinator, which may take it back.
  if (end_of_run_.has_value()) core_->EndAsFound(*end_of_run_);
  // Comes after Listen: NoteServing, which an order of the coordinator may cause, needs servers_.
  for (int i = 0; i < NumTasksHere(); ++i) switches_[i]->Set(core_->handler(i));
  if (secret_is_new_) PP_RETURN_IF_ERROR(SavePeerSecret());
  if (FirstTask() == 0) StartCoordinator();
  return absl::OkStatus();
}

absl::StatusOr<JobSpec> Server::FindJob() {
  if (!IsExternal()) {
    JobSpec job = JobSpec::Create(options_.config, options_.sync, options_.tasks);
    PP_RETURN_IF_ERROR(job.LoadWarmStart(files_, options_.train_dir));
    return job;
  }
  PP_ASSIGN_OR_RETURN(std::optional<VariableLayout> declared,
                      ReadDeclaredVariables(*files_, options_.train_dir, options_.config,
                                            RecoveryRequest().read_attempts));
  if (!declared.has_value()) {
    if (options_.from_checkpoint && options_.from_step.has_value()) {
      return absl::NotFoundError(absl::StrCat("there is no checkpoint of step ",
                                              *options_.from_step, " in ", options_.train_dir,
                                              "; there are none"));
    }
    if (options_.from_checkpoint) {
      return absl::NotFoundError(absl::StrCat(
          "there is no checkpoint in ", options_.train_dir,
          " to go back to; start without --from_checkpoint, and a clone declares the variables"));
    }
    PP_ASSIGN_OR_RETURN(declared, AwaitDeclaration());
  }
  return JobSpec::CreateExternal(options_.config, options_.sync, options_.tasks, *declared);
}

absl::StatusOr<VariableLayout> Server::AwaitDeclaration() {
  DeclarationPhaseOptions phase;
  phase.config = options_.config;
  phase.train_dir = options_.train_dir;
  phase.locked_train_dir = options_.locked_train_dir;
  phase.sync = options_.sync;
  phase.tasks = options_.tasks;
  phase.lease = options_.lease;
  PP_ASSIGN_OR_RETURN(declaration_, DeclarationPhase::Open(std::move(phase), files_, clock_));
  for (const auto& handler : switches_) handler->Set(declaration_->handler_of_others());
  switches_[0]->Set(declaration_->handler());
  PP_RETURN_IF_ERROR(Listen());
  declaration_->SetAddresses(options_.task_index < 0 ? addresses() : options_.cluster);
  absl::StatusOr<VariableLayout> declared = declaration_->Run(options_.stop_requested);
  if (!declared.ok()) {
    // The answers that have just been given still have to leave.
    for (const auto& server : servers_) server->Stop(kStopGrace);
  }
  return declared;
}

bool Server::NeedsPeerSecret() const {
  return NumTasksHere() < options_.tasks && !transport_.credentials->encrypted();
}

absl::Status Server::LoadPeerSecret() {
  const bool is_given = !options_.peer_secret_file.empty();
  const std::string path =
      is_given ? options_.peer_secret_file : JoinPath(options_.train_dir, kPeerSecretFile);
  absl::StatusOr<std::shared_ptr<const PeerSecret>> secret = PeerSecret::Read(path);
  if (!is_given && FirstTask() == 0 && absl::IsNotFound(secret.status())) {
    secret = PeerSecret::Random();
    secret_is_new_ = true;
  }
  // Another task gets here after task 0 has answered it. Task 0 saves the file right after it has
  // begun to answer, and a network file system may show it later still.
  const absl::Duration deadline = clock_->Now() + kSecretPatience;
  while (!is_given && absl::IsNotFound(secret.status()) && clock_->Now() < deadline &&
         !options_.stop_requested()) {
    clock_->Sleep(absl::Milliseconds(200));
    secret = PeerSecret::Read(path);
  }
  if (!secret.ok()) return SecretError(secret.status());
  transport_.peer_secret = *std::move(secret);
  return absl::OkStatus();
}

absl::Status Server::SavePeerSecret() {
  const absl::Status saved =
      transport_.peer_secret->Save(*files_, JoinPath(options_.train_dir, kPeerSecretFile));
  return saved.ok() ? saved : SecretError(saved);
}

std::optional<JobSpec> Server::JobOfCheckpoints() const {
  const absl::StatusOr<std::optional<VariableLayout>> declared =
      ReadDeclaredVariables(*files_, options_.train_dir, options_.config, /*read_attempts=*/1);
  if (!declared.ok() || !declared->has_value()) return std::nullopt;
  absl::StatusOr<JobSpec> job =
      JobSpec::CreateExternal(options_.config, options_.sync, options_.tasks, **declared);
  if (!job.ok()) return std::nullopt;
  return *std::move(job);
}

absl::StatusOr<JobSpec> Server::JobOf(const ps::JobReply& told, std::optional<JobSpec> job) const {
  if (IsExternal()) {
    PP_ASSIGN_OR_RETURN(job,
                        ExternalJobAsTold(told, options_.config, options_.sync, options_.tasks));
  }
  PP_RETURN_IF_ERROR(CheckJob(told, *job));
  return *std::move(job);
}

absl::Status Server::CheckJob(const ps::JobReply& told, const JobSpec& job) const {
  const std::string difference = DescribeJobDifference(told, job, options_.task_index);
  if (difference.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("ps task 0 at ", options_.cluster[0], " ", difference));
}

absl::Status Server::CheckRestore(PsClient* coordinator) const {
  ps::JobRequest request;
  request.set_protocol_version(kProtocolVersion);
  absl::StatusOr<ps::JobReply> told = coordinator->GetJob(request, kRestoreCheckTimeout);
  if (told.ok() && told->awaits_variables()) {
    told = absl::UnavailableError("the process of task 0 that has ordered this has ended");
  }
  const absl::Status same = told.ok() ? CheckJob(*told, core_->job()) : told.status();
  if (same.ok()) {
    return CheckSharedTrainDir(*files_, options_.train_dir, absl::BytesToHexString(told->run_id()),
                               options_.task_index);
  }
  if (told.ok()) {
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::JOB_CHANGED);  // a new process may have the same config
    core_->End(MakeError(detail, same.message()));
  }
  // The coordinator repeats the restore. It would give up the mapped state after other errors.
  return absl::UnavailableError(same.message());
}

absl::Status Server::DrainRun(PsClient* coordinator, PsClient* at_own_address,
                              const std::string& run_id) const {
  ps::JobRequest request;
  request.set_protocol_version(kProtocolVersion);
  PP_ASSIGN_OR_RETURN(const ps::JobReply told, coordinator->GetJob(request, kDrainTimeout));
  if (told.run_id() != run_id) return OtherRun();
  uint64_t boot_id = 0;
  core_->handler(0)->GetShardState({}, [&boot_id](const absl::StatusOr<ps::ShardStateReply>& here) {
    if (here.ok()) boot_id = here->boot_id();
  });
  const absl::StatusOr<ps::ShardStateReply> there =
      at_own_address->GetShardState({}, kDrainTimeout);
  // An address at which nobody answers tells nothing.
  if (there.ok() && there->job_run_id() == run_id && there->boot_id() != boot_id) {
    return OtherProcess();
  }
  return coordinator->Drain({}, kDrainTimeout).status();
}

absl::StatusOr<JobSpec> Server::FindJobOfCoordinator(std::string* run_id) {
  std::optional<JobSpec> job;
  if (!IsExternal()) {
    PP_ASSIGN_OR_RETURN(job, FindJob());
  }
  const std::unique_ptr<PsClient> coordinator = ClientOf(options_.cluster[0]);
  ps::JobRequest request;
  request.set_protocol_version(kProtocolVersion);
  absl::Duration last_answer = clock_->Now();
  absl::Duration next_word = last_answer;
  FinishedRun finished(files_, clock_, options_.train_dir, options_.lease, options_.stop_requested);
  for (;;) {
    absl::StatusOr<ps::JobReply> told = coordinator->GetJob(request, absl::Seconds(5));
    const absl::Duration now = clock_->Now();
    if (GetErrorDetail(told.status()).kind() == ps::ErrorDetail::NOT_READY) last_answer = now;
    if (told.ok()) {
      PP_RETURN_IF_ERROR(CheckProtocolVersion(absl::StrCat("ps task 0 at ", options_.cluster[0]),
                                              told->protocol_version()));
    }
    if (told.ok() && told->awaits_variables()) {
      told = absl::UnavailableError("it waits for a clone that declares the external model");
      last_answer = now;
    }
    if (told.ok()) {
      *run_id = told->run_id();
      return JobOf(*told, std::move(job));
    }
    if (!absl::IsUnavailable(told.status()) && !absl::IsDeadlineExceeded(told.status())) {
      return told.status();
    }
    if (options_.stop_requested()) return absl::CancelledError("stopped by signal");
    if (now >= next_word) {
      LOG(INFO) << "waiting for ps task 0 at " << options_.cluster[0] << ": "
                << told.status().message();
      next_word = now + absl::Seconds(5);
    }
    if (!options_.from_checkpoint && now - last_answer >= options_.lease) {
      if (!job.has_value()) job = JobOfCheckpoints();
      if (job.has_value()) end_of_run_ = finished.Look(*job);
      if (end_of_run_.has_value()) {
        *run_id = end_of_run_->run_id;
        return *std::move(job);
      }
    }
    if (now - last_answer >= kCoordinatorPatience) {
      return absl::DeadlineExceededError(
          absl::StrCat("ps task 0 at ", options_.cluster[0], " did not answer for ",
                       absl::ToInt64Seconds(now - last_answer), " s"));
    }
    clock_->Sleep(absl::Milliseconds(500));
  }
}

absl::Status Server::Listen() {
  if (NeedsPeerSecret()) PP_RETURN_IF_ERROR(LoadPeerSecret());
  PP_ASSIGN_OR_RETURN(const int connections,
                      FitConnections(options_.limits.max_connections, NumTasksHere()));
  transport_.limits = WithConnections(options_.limits, connections);
  for (int i = 0; i < NumTasksHere(); ++i) {
    PP_ASSIGN_OR_RETURN(const std::string address, TaskAddress(options_.listen, i));
    counters_.push_back(
        std::make_shared<RequestCounters>([clock = SteadyClock()] { return clock.Now(); }));
    handlers_.push_back(std::make_unique<CountingHandler>(switches_[i].get(), counters_.back()));
    PP_ASSIGN_OR_RETURN(std::unique_ptr<GrpcPsServer> server,
                        StartGrpcPsServer(address, handlers_.back().get(), transport_));
    servers_.push_back(std::move(server));
  }
  return absl::OkStatus();
}

void Server::StartCoordinator() {
  std::vector<std::unique_ptr<ShardPeer>> remote;
  for (int task = NumTasksHere(); task < options_.tasks; ++task) {
    remote.push_back(MakeRemoteShardPeer(ClientOf(options_.cluster[task])));
  }
  core_->Start(options_.task_index < 0 ? addresses() : options_.cluster, std::move(remote),
               [this] { NoteServing(); });
}

void Server::NoteServing() const {
  for (const auto& server : servers_) server->SetServing(true);
  options_.on_serving();
}

std::unique_ptr<PsClient> Server::ClientOf(const std::string& address) const {
  TransportOptions options = transport_;
  options.max_message_bytes = static_cast<int>(kMaxSnapshotReplyBytes);
  return MakeGrpcPsClient(address, options);
}

std::vector<std::string> Server::addresses() const {
  std::vector<std::string> result;
  for (const auto& server : servers_) result.push_back(server->address());
  return result;
}

MonitoringIdentity Server::MakeMonitoringIdentity(std::string version) const {
  MonitoringIdentity identity;
  identity.version = std::move(version);
  identity.tasks = options_.tasks;
  identity.first_task = FirstTask();
  identity.sync = options_.sync;
  return identity;
}

MonitoringSources Server::MakeMonitoringSources() const {
  MonitoringSources sources;
  sources.status = [this] { return Status(); };
  sources.figures = [this] { return Figures(); };
  sources.take_losses = [this] { return core_->TakeLosses(); };
  sources.counters.assign(counters_.begin(), counters_.end());
  sources.unix_seconds = [] { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); };
  sources.now = [clock = clock_] { return clock->Now(); };
  return sources;
}

std::optional<absl::Status> Server::WaitForEnd(absl::Duration patience) {
  return core_->WaitForEnd(patience);
}

std::string Server::WaitingFor() const {
  if (!core_->CoordinatorIsSilent()) return "";
  return absl::StrCat("ps task 0 at ", options_.cluster[0]);
}

void Server::Drain() { core_->Drain(); }

void Server::Stop(const absl::Status& end) {
  core_->AnnounceEnd(end);
  for (const auto& server : servers_) server->Stop(kStopGrace);
  core_->Close();
}

}  // namespace pushpull
