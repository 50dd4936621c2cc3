#include "worker/client/ps_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "glog/logging.h"

#include "common/base/backoff.h"
#include "common/base/status_macros.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"

namespace pushpull {
namespace {

// Calls that fail, such as a pull from all shards, are repeated within about a second. If this much
// time passes before a call is repeated, its failure does not count as following the last one.
constexpr absl::Duration kLongestPause = absl::Seconds(30);

// A wait is worth a line of the log after kWorthLogging. Its reason is logged again when it
// changes, at most every kReasonPause, and after kSameReasonPause in any case.
constexpr absl::Duration kWorthLogging = absl::Seconds(2);
constexpr absl::Duration kReasonPause = absl::Seconds(10);
constexpr absl::Duration kSameReasonPause = absl::Minutes(5);

CloneIdentity OrRandom(CloneIdentity identity) {
  if (identity.session == 0) identity.session = NewSession();
  return identity;
}

// `what`: the server and what it failed to do.
absl::Status PeerLost(absl::string_view what, absl::Duration silent, absl::Duration deadline,
                      absl::string_view last_error) {
  return MarkPeerLost(absl::DeadlineExceededError(absl::StrFormat(
      "%s for %.0f s (deadline %.0f s)%s%s", what, absl::ToDoubleSeconds(silent),
      absl::ToDoubleSeconds(deadline), last_error.empty() ? "" : ": ", last_error)));
}

absl::Status StoppedByCaller() { return absl::CancelledError("this clone was told to stop"); }

// Whether a transient error is the server's own answer.
bool IsAnswer(const absl::Status& error) {
  return GetErrorDetail(error).kind() != ps::ErrorDetail::UNKNOWN;
}

// Says of a server whose last answer was the transient error what it failed to do.
absl::string_view Failed(const absl::Status& error) {
  return IsAnswer(error) ? " was not ready" : " did not answer";
}

}  // namespace

PsSession::PsSession(Options options, ClientFactory factory, Clock* clock, WaitReporter on_wait)
    : options_(std::move(options)),
      identity_(OrRandom(options_.identity)),
      arithmetic_(options_.arithmetic),
      factory_(std::move(factory)),
      clock_(clock),
      on_wait_(std::move(on_wait)),
      num_replicas_(options_.num_replicas) {}

PsSession::~PsSession() = default;

std::string PsSession::PeerName(int shard) const {
  return absl::StrCat("ps task ", shard, " at ", clients_[shard]->address());
}

absl::Status PsSession::Retry(absl::FunctionRef<int()> shard,
                              absl::FunctionRef<absl::Status()> call) {
  Backoff backoff({.initial = absl::Milliseconds(50), .maximum = absl::Seconds(1)},
                  options_.jitter_seed + options_.worker_id);
  const absl::Duration start = clock_->Now();
  Failures failures;
  for (;;) {
    if (stopped_.load()) return StoppedByCaller();
    const absl::Duration begun = clock_->Now();
    absl::Status status = call();
    if (!IsTransient(status)) return status;
    if (training_done() || !stop_reason().ok()) return status;
    Note(begun, status, &failures);
    const absl::Duration silent = failures.last - failures.first;
    if (silent >= options_.peer_deadline) {
      return PeerLost(absl::StrCat(PeerName(shard()), Failed(status)), silent,
                      options_.peer_deadline, status.message());
    }
    NoteWait(shard(), status, failures.last - start);
    clock_->Sleep(std::min(backoff.Next(), options_.peer_deadline - silent));
  }
}

void PsSession::NoteVersion(uint64_t version) {
  absl::MutexLock lock(&mutex_);
  version_ = std::max(version_, version);
}

void PsSession::NoteServerClock(absl::Duration sent, int64_t server_nanoseconds) {
  if (options_.server_clock == nullptr || server_nanoseconds == 0) return;
  options_.server_clock->AddSample(sent, clock_->Now(), absl::Nanoseconds(server_nanoseconds));
}

void PsSession::Note(absl::Duration begun, const absl::Status& status, Failures* failures) const {
  if (!IsTransient(status)) {
    *failures = {};
    return;
  }
  const absl::Duration now = clock_->Now();
  // After a long pause without calls, during which the server may have been there, or this process
  // may have been frozen, the count begins again.
  const bool follows = begun - failures->last <= kLongestPause;
  if (failures->first == absl::InfiniteDuration() || !follows) failures->first = now;
  failures->last = now;
  failures->error = status;
}

void PsSession::NoteWait(int shard, const absl::Status& why, absl::Duration waited) {
  const absl::Duration now = clock_->Now();
  const std::string peer = PeerName(shard);
  {
    absl::MutexLock lock(&mutex_);
    const std::string reason = absl::StrCat("waiting for ", peer, ": ", why.message());
    const absl::Duration pause = reason == last_reason_ ? kSameReasonPause : kReasonPause;
    if (waited >= kWorthLogging && now - last_reason_at_ >= pause) {
      LOG(WARNING) << reason;
      last_reason_ = reason;
      last_reason_at_ = now;
    }
  }
  ReportWait(IsAnswer(why) ? absl::StrCat(peer, ", which answers: ", why.message()) : peer);
}

void PsSession::ReportWait(const std::string& what) {
  const absl::Duration now = clock_->Now();
  {
    absl::MutexLock lock(&mutex_);
    if (now - last_wait_report_ < absl::Seconds(1)) return;
    last_wait_report_ = now;
  }
  if (on_wait_) on_wait_(what);
}

const PsSession::Failures* PsSession::FindFailures(absl::Duration now, int* shard) const {
  *shard = 0;
  if (now > heartbeats_.first) return &heartbeats_;
  for (const Failures& pulls : pulls_) {
    if (now > pulls.first) return &pulls;
    ++*shard;
  }
  return nullptr;
}

void PsSession::ForgetPulls() {
  absl::MutexLock lock(&mutex_);
  for (Failures& pulls : pulls_) pulls = {};
}

absl::Status PsSession::CheckContact() {
  if (stopped_.load()) return StoppedByCaller();
  const auto lost = [this](std::string what, const Failures& failures) {
    return PeerLost(what, failures.last - failures.first, options_.peer_deadline,
                    failures.error.message());
  };
  const auto are_too_long = [this](const Failures& failures) {
    return failures.last - failures.first >= options_.peer_deadline;
  };
  const absl::Duration now = clock_->Now();
  int shard = 0;
  Failures failures;
  {
    absl::MutexLock lock(&mutex_);
    if (are_too_long(heartbeats_)) {
      return lost(absl::StrCat(PeerName(0), Failed(heartbeats_.error)), heartbeats_);
    }
    for (size_t i = 0; i < pulls_.size(); ++i) {
      if (!are_too_long(pulls_[i])) continue;
      return lost(absl::StrCat("every pull from ", PeerName(static_cast<int>(i)), " failed"),
                  pulls_[i]);
    }
    const Failures* const found = FindFailures(now, &shard);
    if (found == nullptr) return absl::OkStatus();
    failures = *found;
  }
  NoteWait(shard, failures.error, now - failures.first);
  return absl::OkStatus();
}

void PsSession::AddClient(const std::string& address) {
  std::unique_ptr<PsClient> client = factory_(address);
  absl::MutexLock lock(&mutex_);
  clients_.push_back(std::move(client));
}

void PsSession::Cancel() {
  Stop();
  absl::MutexLock lock(&mutex_);
  for (const std::unique_ptr<PsClient>& client : clients_) client->CancelCalls();
}

absl::Status PsSession::Connect(const std::vector<std::string>& addresses) {
  CHECK(clients_.empty());
  if (addresses.empty()) return absl::InvalidArgumentError("no address of a ps task is given");
  AddClient(addresses[0]);
  ps::JobRequest request;
  request.set_protocol_version(kProtocolVersion);
  PP_RETURN_IF_ERROR(Retry(0, [&]() -> absl::Status {
    const absl::Duration sent = clock_->Now();
    PP_ASSIGN_OR_RETURN(job_, clients_[0]->GetJob(request, options_.rpc_timeout));
    NoteServerClock(sent, job_.server_nanoseconds());
    return absl::OkStatus();
  }));
  PP_RETURN_IF_ERROR(CheckProtocolVersion(PeerName(0), job_.protocol_version()));
  const int tasks = static_cast<int>(job_.tasks());
  if (addresses.size() != 1 && static_cast<int>(addresses.size()) != tasks) {
    return absl::InvalidArgumentError(
        absl::StrCat(addresses.size(), " addresses of ps tasks are given, but the job has ", tasks,
                     tasks == 1 ? " task" : " tasks", "; give the first address or all of them"));
  }
  if (job_.addresses_size() != tasks) {
    return absl::InternalError(absl::StrCat(PeerName(0), " announces ", tasks, " tasks and ",
                                            job_.addresses_size(), " addresses"));
  }
  for (int shard = 1; shard < tasks; ++shard) {
    PP_ASSIGN_OR_RETURN(const std::string address,
                        addresses.size() == 1 ? AnnouncedAddress(shard, addresses[0])
                                              : absl::StatusOr<std::string>(addresses[shard]));
    AddClient(address);
  }
  absl::MutexLock lock(&mutex_);
  run_id_ = job_.run_id();
  pulls_.resize(tasks);
  return absl::OkStatus();
}

absl::StatusOr<std::string> PsSession::AnnouncedAddress(
    int shard, const std::string& address_of_task_0) const {
  std::string address = AddressOfTask(job_.addresses(shard), address_of_task_0);
  if (!options_.security.has_value()) return address;
  const absl::Status exposure = CheckExposure(*options_.security, {address});
  if (exposure.ok()) return address;
  return absl::FailedPreconditionError(absl::StrCat(PeerName(0), " announces task ", shard, " at ",
                                                    address, ": ", exposure.message()));
}

std::vector<PsClient*> PsSession::shards() const {
  std::vector<PsClient*> result;
  for (const auto& client : clients_) result.push_back(client.get());
  return result;
}

absl::StatusOr<ps::DeclareReply> PsSession::Declare(ps::DeclareRequest part) {
  part.set_run_id(run_id());
  part.set_worker_id(options_.worker_id);
  part.set_session(identity_.session);
  part.set_peer_name(options_.peer_name);
  if (stopped_.load()) return StoppedByCaller();
  absl::StatusOr<ps::DeclareReply> reply =
      clients_[0]->DeclareVariables(part, options_.rpc_timeout);
  if (!reply.ok()) reply = FollowRun(reply.status());
  if (IsTransient(reply.status())) NoteWait(0, reply.status(), kWorthLogging);
  return reply;
}

absl::StatusOr<bool> PsSession::AwaitsVariables() {
  ps::JobRequest request;
  request.set_protocol_version(kProtocolVersion);
  bool awaits = false;
  PP_RETURN_IF_ERROR(Retry(0, [&]() -> absl::Status {
    PP_ASSIGN_OR_RETURN(const ps::JobReply job, clients_[0]->GetJob(request, options_.rpc_timeout));
    awaits = job.awaits_variables();
    return absl::OkStatus();
  }));
  return awaits;
}

absl::StatusOr<ps::CommitReply> PsSession::Commit(const ps::PushKey& key,
                                                  const ps::CommitInfo& info, int* attempts) {
  ps::CommitRequest request;
  *request.mutable_key() = key;
  *request.mutable_info() = info;
  ps::CommitReply reply;
  *attempts = 0;
  PP_RETURN_IF_ERROR(Retry(0, [&]() -> absl::Status {
    ++*attempts;
    PP_ASSIGN_OR_RETURN(reply, clients_[0]->Commit(request, options_.rpc_timeout));
    return absl::OkStatus();
  }));
  NoteVersion(reply.version());
  return reply;
}

ps::PushKey PsSession::MakeKey(uint64_t step, const ps::ReplicaGrant& grant,
                               uint64_t base_version) const {
  ps::PushKey key;
  key.set_run_id(run_id());
  key.set_epoch(epoch());
  key.set_step(step);
  key.set_replica(grant.replica());
  key.set_grant(grant.grant());
  key.set_mac(grant.mac());
  key.set_worker_id(options_.worker_id);
  key.set_base_version(base_version);
  return key;
}

}  // namespace pushpull
