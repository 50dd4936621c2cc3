#include "tests/testkit/job/relay_handler.h"

#include <utility>

namespace pushpull {
namespace {

absl::Status Gone() { return absl::UnavailableError("connection refused"); }

}  // namespace

void RelayHandler::Connect(PsHandler* target) {
  absl::MutexLock lock(&gate_);
  target_ = target;
  ++connection_;
}

void RelayHandler::Disconnect() {
  {
    absl::MutexLock lock(&gate_);
    target_ = nullptr;
    ++connection_;
  }
  std::map<uint64_t, std::function<void()>> calls;
  {
    absl::MutexLock lock(&waiting_->mutex);
    calls.swap(waiting_->calls);
  }
  for (const auto& [number, fail] : calls) fail();
}

template <typename Reply>
PsHandler::Done<Reply> RelayHandler::Guard(Done<Reply> done) {
  uint64_t number;
  {
    absl::MutexLock lock(&waiting_->mutex);
    number = ++waiting_->last;
    waiting_->calls[number] = [done] { done(Gone()); };
  }
  return [waiting = waiting_, number, done = std::move(done)](absl::StatusOr<Reply> reply) {
    {
      absl::MutexLock lock(&waiting->mutex);
      if (waiting->calls.erase(number) == 0) return;
    }
    done(std::move(reply));
  };
}

CancelFn RelayHandler::GuardCancel(CancelFn cancel) {
  return [this, connection = connection_, cancel = std::move(cancel)] {
    absl::ReaderMutexLock lock(&gate_);
    if (connection == connection_ && cancel) cancel();
  };
}

template <typename Request, typename Reply>
void RelayHandler::Forward(void (PsHandler::*method)(const Request&, Done<Reply>),
                           const Request& request, Done<Reply> done) {
  absl::ReaderMutexLock lock(&gate_);
  if (target_ == nullptr) return done(Gone());
  (target_->*method)(request, Guard<Reply>(std::move(done)));
}

void RelayHandler::GetJob(const ps::JobRequest& request, Done<ps::JobReply> done) {
  Forward(&PsHandler::GetJob, request, std::move(done));
}
void RelayHandler::Register(const ps::RegisterRequest& request, Done<ps::RegisterReply> done) {
  Forward(&PsHandler::Register, request, std::move(done));
}
void RelayHandler::Heartbeat(const ps::HeartbeatRequest& request, Done<ps::HeartbeatReply> done) {
  Forward(&PsHandler::Heartbeat, request, std::move(done));
}
void RelayHandler::Commit(const ps::CommitRequest& request, Done<ps::CommitReply> done) {
  if (audit_ != nullptr) {
    done = [audit = audit_, key = request.key(),
            done = std::move(done)](absl::StatusOr<ps::CommitReply> reply) {
      if (reply.ok()) audit->NoteOutcome(key, reply->outcome());
      done(std::move(reply));
    };
  }
  Forward(&PsHandler::Commit, request, std::move(done));
}
void RelayHandler::GetStatus(const ps::StatusRequest& request, Done<ps::StatusReply> done) {
  Forward(&PsHandler::GetStatus, request, std::move(done));
}
void RelayHandler::Checkpoint(const ps::CheckpointRequest& request,
                              Done<ps::CheckpointReply> done) {
  Forward(&PsHandler::Checkpoint, request, std::move(done));
}
void RelayHandler::Drain(const ps::DrainRequest& request, Done<ps::DrainReply> done) {
  Forward(&PsHandler::Drain, request, std::move(done));
}
void RelayHandler::Evict(const ps::EvictRequest& request, Done<ps::EvictReply> done) {
  Forward(&PsHandler::Evict, request, std::move(done));
}

absl::Status RelayHandler::PushChunk(const ps::PushChunk& header, const Payload& payload) {
  absl::ReaderMutexLock lock(&gate_);
  if (target_ == nullptr) return Gone();
  if (audit_ != nullptr) audit_->NoteChunk(header, payload);
  return target_->PushChunk(header, payload);
}

CancelFn RelayHandler::FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) {
  if (audit_ != nullptr && last.has_commit()) {
    done = [audit = audit_, key = last.key(),
            done = std::move(done)](absl::StatusOr<ps::PushReply> reply) {
      if (reply.ok()) audit->NoteOutcome(key, reply->outcome());
      done(std::move(reply));
    };
  }
  absl::ReaderMutexLock lock(&gate_);
  if (target_ == nullptr) {
    done(Gone());
    return nullptr;
  }
  return GuardCancel(target_->FinishPush(last, Guard<ps::PushReply>(std::move(done))));
}

CancelFn RelayHandler::Pull(const ps::PullRequest& request, Done<PullSnapshot> done) {
  if (audit_ != nullptr) {
    done = [audit = audit_, done = std::move(done)](absl::StatusOr<PullSnapshot> snapshot) {
      if (snapshot.ok()) audit->NotePull(*snapshot);
      done(std::move(snapshot));
    };
  }
  absl::ReaderMutexLock lock(&gate_);
  if (target_ == nullptr) {
    done(Gone());
    return nullptr;
  }
  return GuardCancel(target_->Pull(request, Guard<PullSnapshot>(std::move(done))));
}

void RelayHandler::OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                                    Done<ps::OpenSharedMemoryReply> done) {
  Forward(&PsHandler::OpenSharedMemory, request, std::move(done));
}
void RelayHandler::GetShardState(const ps::ShardStateRequest& request,
                                 Done<ps::ShardStateReply> done) {
  Forward(&PsHandler::GetShardState, request, std::move(done));
}
void RelayHandler::Restore(const ps::RestoreRequest& request, Done<ps::RestoreReply> done) {
  Forward(&PsHandler::Restore, request, std::move(done));
}
void RelayHandler::MeasureNorm(const ps::ApplyRequest& request, Done<ps::NormReply> done) {
  Forward(&PsHandler::MeasureNorm, request, std::move(done));
}
void RelayHandler::Apply(const ps::ApplyRequest& request, Done<ps::ApplyReply> done) {
  Forward(&PsHandler::Apply, request, std::move(done));
}
void RelayHandler::Snapshot(const ps::SnapshotRequest& request, Done<ps::SnapshotReply> done) {
  Forward(&PsHandler::Snapshot, request, std::move(done));
}
void RelayHandler::EndTask(const ps::EndTaskRequest& request, Done<ps::EndTaskReply> done) {
  Forward(&PsHandler::EndTask, request, std::move(done));
}

}  // namespace pushpull
