// Tested by tests/worker/client/ps_session_test.cc.
// Tested by tests/worker/client/end_of_training_test.cc.
// How PsSession registers its clone and renews the lease, and what it keeps of the answers.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "common/model/variable_entries.h"
#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"
#include "worker/client/ps_session.h"

namespace pushpull {
namespace {

// How long Register waits, at least and beyond the lease, for a worker_id that another session
// holds, or for clones with other data that may have ended.
constexpr absl::Duration kForeignLease = absl::Seconds(30);
constexpr absl::Duration kAfterTheLease = absl::Seconds(5);
constexpr absl::Duration kLeaveTimeout = absl::Seconds(1);

ps::HeartbeatRequest HeartbeatOf(const CloneIdentity& identity, uint32_t worker_id,
                                 const std::string& run_id, uint64_t epoch) {
  ps::HeartbeatRequest request;
  request.set_run_id(run_id);
  request.set_epoch(epoch);
  request.set_worker_id(worker_id);
  request.set_session(identity.session);
  request.set_process_number(identity.process_number);
  return request;
}

}  // namespace

absl::Status PsSession::CheckWanted() {
  PP_RETURN_IF_ERROR(stop_reason());
  if (training_done()) return absl::CancelledError("training is done");
  return CheckContact();
}

absl::Status PsSession::Register(const VariableLayout& layout, uint64_t num_images) {
  ps::RegisterRequest request;
  request.set_worker_id(options_.worker_id);
  request.set_num_replicas(num_replicas());
  request.set_peer_name(options_.peer_name);
  request.set_layout_signature(layout.signature());
  request.set_protocol_version(kProtocolVersion);
  request.set_session(identity_.session);
  request.set_process_number(identity_.process_number);
  request.set_num_images(num_images);
  *request.mutable_arithmetic() = arithmetic_;
  request.set_job_fingerprint(job_.fingerprint());
  for (ps::VariableEntry& entry : VariableEntries(layout)) {
    *request.add_variables() = std::move(entry);
  }
  ps::RegisterReply reply;
  const absl::Duration lease = absl::Milliseconds(job_.lease_milliseconds());
  const absl::Duration patience = std::max(kForeignLease, lease + kAfterTheLease);
  absl::Duration give_up = absl::InfiniteDuration();
  PP_RETURN_IF_ERROR(Retry(0, [&]() -> absl::Status {
    request.set_run_id(run_id());
    absl::StatusOr<ps::RegisterReply> answer = clients_[0]->Register(request, options_.rpc_timeout);
    if (absl::IsAlreadyExists(answer.status())) {
      // Another session holds this worker_id, or live clones have other data. If their processes
      // have ended, their leases run out soon. If not, the flags or the data are wrong. The server
      // may have been away before, so only the time since its first such answer counts.
      give_up = std::min(give_up, clock_->Now() + patience);
      if (clock_->Now() < give_up) {
        ps::ErrorDetail detail;
        detail.set_kind(ps::ErrorDetail::NOT_READY);
        return MakeError(detail, answer.status().message());
      }
    }
    if (!answer.ok()) return FollowRun(answer.status());
    reply = *std::move(answer);
    return absl::OkStatus();
  }));
  auto exact = std::make_shared<const ExactElements>(ExactElementsOf(layout));
  absl::MutexLock lock(&mutex_);
  exact_ = std::move(exact);
  ++registrations_;
  has_to_register_ = false;
  // An end that the server announced in an earlier epoch no longer holds.
  if (reply.epoch() > end_epoch_) {
    training_done_ = false;
    stop_reason_ = absl::OkStatus();
  }
  epoch_ = reply.epoch();
  version_ = reply.version();
  open_step_ = reply.version() + 1;
  if (reply.num_replicas() > 0) num_replicas_ = reply.num_replicas();
  grants_.assign(reply.grants().begin(), reply.grants().end());
  lease_ = absl::Milliseconds(reply.lease_milliseconds());
  num_steps_ = reply.num_steps();
  if (reply.training_done()) NoteEnd(reply.epoch(), absl::OkStatus());
  return absl::OkStatus();
}

absl::Status PsSession::FollowRun(const absl::Status& error) {
  if (GetErrorDetail(error).kind() != ps::ErrorDetail::WRONG_RUN) return error;
  {
    absl::MutexLock lock(&mutex_);
    if (registrations_ > 0) return error;
  }
  ps::JobRequest request;
  request.set_protocol_version(kProtocolVersion);
  PP_ASSIGN_OR_RETURN(const ps::JobReply job, clients_[0]->GetJob(request, options_.rpc_timeout));
  ps::ErrorDetail detail;
  if (job.fingerprint() != job_.fingerprint()) {
    detail.set_kind(ps::ErrorDetail::JOB_CHANGED);
    return MarkPassing(MakeError(
        detail, absl::StrCat(PeerName(0),
                             " was started again with other settings, before this clone was "
                             "registered: start the clone again")));
  }
  absl::MutexLock lock(&mutex_);
  if (job.run_id() == run_id_) return error;
  run_id_ = job.run_id();
  detail.set_kind(ps::ErrorDetail::NOT_READY);
  return MakeError(detail, "the server was started again and has begun another run of this job");
}

void PsSession::NoteEnd(uint64_t epoch, absl::Status reason) {
  if (epoch < epoch_) return;
  end_epoch_ = epoch;
  if (reason.ok()) {
    training_done_ = true;
  } else {
    stop_reason_ = std::move(reason);
  }
}

void PsSession::NoteStop(const absl::Status& error) {
  const ps::ErrorDetail::Kind kind = GetErrorDetail(error).kind();
  if (kind != ps::ErrorDetail::STOPPED && kind != ps::ErrorDetail::EVICTED) return;
  absl::MutexLock lock(&mutex_);
  NoteEnd(epoch_, error);
}

absl::Status PsSession::Heartbeat(const ps::CloneProgress& progress) {
  uint64_t epoch = 0;
  uint64_t registrations = 0;
  {
    absl::MutexLock lock(&mutex_);
    registrations = registrations_;
    epoch = epoch_;
  }
  ps::HeartbeatRequest request = HeartbeatOf(identity_, options_.worker_id, run_id(), epoch);
  *request.mutable_progress() = progress;
  // A heartbeat that arrives after the lease has ended is useless.
  const absl::Duration timeout =
      std::min(options_.rpc_timeout, std::max(lease(), absl::Seconds(1)));
  const absl::Duration sent = clock_->Now();
  const absl::StatusOr<ps::HeartbeatReply> answer = clients_[0]->Heartbeat(request, timeout);
  if (answer.ok()) NoteServerClock(sent, answer->server_nanoseconds());
  {
    absl::MutexLock lock(&mutex_);
    Note(sent, answer.status(), &heartbeats_);
  }
  NoteStop(answer.status());
  if (GetErrorDetail(answer.status()).kind() == ps::ErrorDetail::EPOCH_CHANGED) {
    absl::MutexLock lock(&mutex_);
    has_to_register_ |= registrations == registrations_;
  }
  PP_RETURN_IF_ERROR(answer.status());
  const ps::HeartbeatReply& reply = *answer;
  absl::Status stopped;
  if (!reply.stopped().empty()) {
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::STOPPED);
    stopped = MakeError(detail, reply.stopped());
  }
  {
    absl::MutexLock lock(&mutex_);
    // An answer that says otherwise may be older: two threads send heartbeats.
    if (!stopped.ok() || reply.training_done()) NoteEnd(reply.epoch(), stopped);
    // If the clone has registered since the heartbeat was sent, the grants of that registration may
    // be newer than the reply's. A push under an older grant would be fenced.
    if (reply.epoch() == epoch_ && registrations == registrations_) {
      version_ = std::max<uint64_t>(version_, reply.version());
      open_step_ = std::max<uint64_t>(open_step_, reply.version() + 1);
      if (reply.num_replicas() > 0) num_replicas_ = reply.num_replicas();
      grants_.assign(reply.grants().begin(), reply.grants().end());
    }
    waiting_for_ = reply.waiting_for();
    learning_rate_ = reply.learning_rate();
  }
  return stopped;
}

absl::Status PsSession::Leave() {
  uint64_t epoch = 0;
  {
    absl::MutexLock lock(&mutex_);
    if (clock_->Now() > heartbeats_.first) return absl::OkStatus();  // the server is silent
    epoch = epoch_;
  }
  ps::HeartbeatRequest request = HeartbeatOf(identity_, options_.worker_id, run_id(), epoch);
  request.set_leaving(true);
  const absl::Status left =
      clients_[0]->Heartbeat(request, std::min(options_.rpc_timeout, kLeaveTimeout)).status();
  // The lease ends by itself if the server does not hear this.
  if (!left.ok()) VLOG(1) << "the server was not told that this clone leaves: " << left;
  return left;
}

std::string PsSession::run_id() const {
  absl::MutexLock lock(&mutex_);
  return run_id_;
}

std::vector<ps::ReplicaGrant> PsSession::grants() const {
  absl::MutexLock lock(&mutex_);
  return grants_;
}

uint64_t PsSession::epoch() const {
  absl::MutexLock lock(&mutex_);
  return epoch_;
}

uint64_t PsSession::version() const {
  absl::MutexLock lock(&mutex_);
  return version_;
}

absl::Duration PsSession::lease() const {
  absl::MutexLock lock(&mutex_);
  return lease_;
}

uint64_t PsSession::open_step() const {
  absl::MutexLock lock(&mutex_);
  return open_step_;
}

uint32_t PsSession::num_replicas() const {
  absl::MutexLock lock(&mutex_);
  return num_replicas_;
}

uint64_t PsSession::num_steps() const {
  absl::MutexLock lock(&mutex_);
  return num_steps_;
}

bool PsSession::has_to_register() const {
  absl::MutexLock lock(&mutex_);
  return has_to_register_;
}

bool PsSession::training_done() const {
  absl::MutexLock lock(&mutex_);
  return training_done_;
}

absl::Status PsSession::stop_reason() const {
  absl::MutexLock lock(&mutex_);
  return stop_reason_;
}

std::string PsSession::silent_peer() const {
  absl::MutexLock lock(&mutex_);
  int shard = 0;
  return FindFailures(clock_->Now(), &shard) == nullptr ? "" : PeerName(shard);
}

std::string PsSession::waiting_for() const {
  const std::string silent = silent_peer();
  if (!silent.empty()) return silent;
  absl::MutexLock lock(&mutex_);
  return waiting_for_;
}

double PsSession::learning_rate() const {
  absl::MutexLock lock(&mutex_);
  return learning_rate_;
}

}  // namespace pushpull
