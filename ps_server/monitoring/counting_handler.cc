#include "ps_server/monitoring/counting_handler.h"

#include <utility>

namespace pushpull {
namespace {

// Returns `payload` with a new owner that records the time since `start` when it is released.
Payload TimedPayload(Payload payload, std::shared_ptr<RequestCounters> counters,
                     absl::Duration start) {
  const void* const address = payload.owner.get();
  payload.owner = std::shared_ptr<const void>(
      address, [owner = std::move(payload.owner), counters = std::move(counters),
                start](const void*) mutable {
        owner.reset();
        counters->ObservePull(counters->Now() - start);
      });
  return payload;
}

}  // namespace

CountingHandler::CountingHandler(PsHandler* inner, std::shared_ptr<RequestCounters> counters)
    : inner_(inner), counters_(std::move(counters)) {}

template <typename Reply>
PsHandler::Done<Reply> CountingHandler::Counted(PsMethod method, Done<Reply> done) {
  return [counters = counters_, method, done = std::move(done)](absl::StatusOr<Reply> reply) {
    counters->CountCall(method, reply.status().code());
    done(std::move(reply));
  };
}

void CountingHandler::GetJob(const ps::JobRequest& request, Done<ps::JobReply> done) {
  inner_->GetJob(request, Counted(PsMethod::kGetJob, std::move(done)));
}

void CountingHandler::Register(const ps::RegisterRequest& request, Done<ps::RegisterReply> done) {
  inner_->Register(request, Counted(PsMethod::kRegister, std::move(done)));
}

void CountingHandler::Heartbeat(const ps::HeartbeatRequest& request,
                                Done<ps::HeartbeatReply> done) {
  inner_->Heartbeat(request, Counted(PsMethod::kHeartbeat, std::move(done)));
}

void CountingHandler::Commit(const ps::CommitRequest& request, Done<ps::CommitReply> done) {
  inner_->Commit(request, [counters = counters_, step = request.key().step(),
                           done = std::move(done)](absl::StatusOr<ps::CommitReply> reply) {
    counters->CountCall(PsMethod::kCommit, reply.status().code());
    if (reply.ok() && reply->outcome() == ps::PushReply::ACCEPTED) {
      counters->NoteContribution(step);
    }
    done(std::move(reply));
  });
}

void CountingHandler::GetStatus(const ps::StatusRequest& request, Done<ps::StatusReply> done) {
  inner_->GetStatus(request, Counted(PsMethod::kGetStatus, std::move(done)));
}

void CountingHandler::Checkpoint(const ps::CheckpointRequest& request,
                                 Done<ps::CheckpointReply> done) {
  inner_->Checkpoint(request, Counted(PsMethod::kCheckpoint, std::move(done)));
}

void CountingHandler::Drain(const ps::DrainRequest& request, Done<ps::DrainReply> done) {
  inner_->Drain(request, Counted(PsMethod::kDrain, std::move(done)));
}

void CountingHandler::Evict(const ps::EvictRequest& request, Done<ps::EvictReply> done) {
  inner_->Evict(request, Counted(PsMethod::kEvict, std::move(done)));
}

absl::Status CountingHandler::PushChunk(const ps::PushChunk& header, const Payload& payload) {
  counters_->CountPushedBytes(payload.size_bytes);
  absl::Status status = inner_->PushChunk(header, payload);
  if (!status.ok()) counters_->CountCall(PsMethod::kPush, status.code());
  return status;
}

CancelFn CountingHandler::FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) {
  return inner_->FinishPush(
      last, [counters = counters_, start = counters_->Now(), step = last.key().step(),
             done = std::move(done)](absl::StatusOr<ps::PushReply> reply) {
        counters->CountCall(PsMethod::kPush, reply.status().code());
        counters->ObservePush(counters->Now() - start);
        if (reply.ok() && reply->outcome() == ps::PushReply::ACCEPTED &&
            reply->level() == ps::COMMITTED) {
          counters->NoteContribution(step);
        }
        done(std::move(reply));
      });
}

CancelFn CountingHandler::Pull(const ps::PullRequest& request, Done<PullSnapshot> done) {
  return inner_->Pull(request, [counters = counters_, start = counters_->Now(),
                                done = std::move(done)](absl::StatusOr<PullSnapshot> snapshot) {
    counters->CountCall(PsMethod::kPull, snapshot.status().code());
    if (snapshot.ok()) {
      counters->ObservePullWait(counters->Now() - start);
      counters->CountPull(snapshot->version, snapshot->payload.size_bytes);
      snapshot->payload = TimedPayload(std::move(snapshot->payload), counters, start);
    }
    done(std::move(snapshot));
  });
}

void CountingHandler::OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                                       Done<ps::OpenSharedMemoryReply> done) {
  inner_->OpenSharedMemory(request, Counted(PsMethod::kOpenSharedMemory, std::move(done)));
}

void CountingHandler::GetShardState(const ps::ShardStateRequest& request,
                                    Done<ps::ShardStateReply> done) {
  inner_->GetShardState(request, Counted(PsMethod::kGetShardState, std::move(done)));
}

void CountingHandler::Restore(const ps::RestoreRequest& request, Done<ps::RestoreReply> done) {
  inner_->Restore(request, Counted(PsMethod::kRestore, std::move(done)));
}

void CountingHandler::MeasureNorm(const ps::ApplyRequest& request, Done<ps::NormReply> done) {
  inner_->MeasureNorm(request, Counted(PsMethod::kMeasureNorm, std::move(done)));
}

void CountingHandler::Apply(const ps::ApplyRequest& request, Done<ps::ApplyReply> done) {
  inner_->Apply(request, Counted(PsMethod::kApply, std::move(done)));
}

void CountingHandler::Snapshot(const ps::SnapshotRequest& request, Done<ps::SnapshotReply> done) {
  inner_->Snapshot(request, Counted(PsMethod::kSnapshot, std::move(done)));
}

void CountingHandler::EndTask(const ps::EndTaskRequest& request, Done<ps::EndTaskReply> done) {
  inner_->EndTask(request, Counted(PsMethod::kEndTask, std::move(done)));
}

}  // namespace pushpull
