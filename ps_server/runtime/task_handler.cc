#include "ps_server/runtime/task_handler.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "common/wire/error_detail.h"
#include "common/wire/protocol_version.h"

namespace pushpull {
namespace {

absl::Status NoOrders() {
  return absl::PermissionDeniedError(
      "this shard's coordinator is in its own process: nobody else gives it orders");
}

}  // namespace

absl::Status TaskHandler::NotCoordinator() {
  return absl::FailedPreconditionError(
      "this ps task is not the coordinator; ask task 0 (the first address of --ps)");
}

TaskHandler::TaskHandler(const JobSpec* job, std::string run_id, ShardRuntime* shard,
                         CoordinatorRuntime* coordinator, Orders orders, EndFn end)
    : job_(job),
      run_id_(std::move(run_id)),
      shard_(shard),
      coordinator_(coordinator),
      orders_(orders),
      end_(std::move(end)) {}

void TaskHandler::SetAddresses(std::vector<std::string> addresses) {
  absl::MutexLock lock(&mutex_);
  addresses_ = std::move(addresses);
}

void TaskHandler::DoGetJob(const ps::JobRequest&, Done<ps::JobReply> done) {
  ps::JobReply reply;
  reply.set_epoch(coordinator_->epoch());
  {
    absl::MutexLock lock(&mutex_);
    // train_dir names the run from the first epoch on. If this server ended before that, the next
    // one would begin another run, and a peer that had heard of this one would be refused.
    if (addresses_.empty() || reply.epoch() == 0) {
      ps::ErrorDetail detail;
      detail.set_kind(ps::ErrorDetail::NOT_READY);
      return done(MakeError(detail, "the server is starting"));
    }
    for (const std::string& address : addresses_) reply.add_addresses(address);
  }
  reply.set_protocol_version(kProtocolVersion);
  reply.set_run_id(run_id_);
  reply.set_sync(job_->sync);
  reply.set_seed(job_->seed);
  reply.set_num_steps(coordinator_->last_step());
  reply.set_num_replicas(coordinator_->num_replicas());
  reply.set_tasks(job_->sharding.tasks());
  reply.set_pipeline_config(job_->config_text);
  reply.set_layout_signature(job_->layout.signature());
  for (const ps::VariableEntry& entry : VariableEntries(job_->layout)) {
    *reply.add_variables() = entry;
  }
  reply.set_version(coordinator_->version());
  reply.set_fingerprint(job_->fingerprint);
  reply.set_lease_milliseconds(absl::ToInt64Milliseconds(coordinator_->lease()));
  reply.set_server_nanoseconds(absl::ToInt64Nanoseconds(coordinator_->Now()));
  done(std::move(reply));
}

void TaskHandler::DoRegister(const ps::RegisterRequest& request, Done<ps::RegisterReply> done) {
  coordinator_->Register(request, std::move(done));
}

void TaskHandler::DoDeclareVariables(const ps::DeclareRequest& request,
                                     Done<ps::DeclareReply> done) {
  if (request.run_id() != run_id_) {
    ps::ErrorDetail detail;
    detail.set_kind(ps::ErrorDetail::WRONG_RUN);
    return done(MakeError(detail, "this server belongs to another job (run_id differs)"));
  }
  if (!job_->declared.has_value()) {
    return done(absl::FailedPreconditionError(
        "the server knows the variables of this job's model: no clone declares them (only those of "
        "model.external are declared)"));
  }
  int64_t elements = 0;
  for (int64_t i = 0; i < job_->layout.num_variables(); ++i) {
    elements += job_->layout.num_elements(i);
  }
  ps::DeclareReply reply;
  reply.set_elements(elements);
  reply.set_declared(true);
  done(std::move(reply));
}

void TaskHandler::DoHeartbeat(const ps::HeartbeatRequest& request, Done<ps::HeartbeatReply> done) {
  coordinator_->Heartbeat(request,
                          [this, done = std::move(done)](absl::StatusOr<ps::HeartbeatReply> reply) {
                            if (reply.ok()) {
                              reply->set_learning_rate(job_->LearningRateAt(reply->version()));
                            }
                            done(std::move(reply));
                          });
}

void TaskHandler::DoCommit(const ps::CommitRequest& request, Done<ps::CommitReply> done) {
  coordinator_->Commit(request, std::move(done));
}

void TaskHandler::DoGetStatus(const ps::StatusRequest&, Done<ps::StatusReply> done) {
  ps::StatusReply reply = coordinator_->Status();
  reply.set_run_id(run_id_);
  done(std::move(reply));
}

void TaskHandler::DoCheckpoint(const ps::CheckpointRequest& request,
                               Done<ps::CheckpointReply> done) {
  coordinator_->Checkpoint(request, std::move(done));
}

void TaskHandler::DoDrain(const ps::DrainRequest& request, Done<ps::DrainReply> done) {
  coordinator_->Drain(request, std::move(done));
}

void TaskHandler::DoEvict(const ps::EvictRequest& request, Done<ps::EvictReply> done) {
  coordinator_->Evict(request, std::move(done));
}

void TaskHandler::DoScale(const ps::ScaleRequest& request, Done<ps::ScaleReply> done) {
  coordinator_->Scale(request, std::move(done));
}

absl::Status TaskHandler::PushChunk(const ps::PushChunk& header, const Payload& payload) {
  return shard_->PushChunk(header, payload);
}

CancelFn TaskHandler::FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) {
  // Only task 0 knows of evictions. What an evicted clone stages on the other tasks is never
  // committed.
  if (coordinator_ != nullptr) {
    const absl::Status evicted = coordinator_->CheckNotEvicted(last.key().worker_id());
    if (!evicted.ok()) {
      done(evicted);
      return nullptr;
    }
  }
  return shard_->FinishPush(last, std::move(done));
}

CancelFn TaskHandler::Pull(const ps::PullRequest& request, Done<PullSnapshot> done) {
  return shard_->Pull(request, std::move(done));
}

void TaskHandler::OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                                   Done<ps::OpenSharedMemoryReply> done) {
  done(shard_->OpenSharedMemory(request));
}

void TaskHandler::DoGetShardState(const ps::ShardStateRequest&, Done<ps::ShardStateReply> done) {
  shard_->GetState(std::move(done));
}

void TaskHandler::DoRestore(const ps::RestoreRequest& request, Done<ps::RestoreReply> done) {
  if (orders_ == Orders::kFromThisProcess) return done(NoOrders());
  shard_->Restore(request, std::move(done));
}

void TaskHandler::DoMeasureNorm(const ps::ApplyRequest& request, Done<ps::NormReply> done) {
  if (orders_ == Orders::kFromThisProcess) return done(NoOrders());
  shard_->MeasureNorm(request, std::move(done));
}

void TaskHandler::DoApply(const ps::ApplyRequest& request, Done<ps::ApplyReply> done) {
  if (orders_ == Orders::kFromThisProcess) return done(NoOrders());
  shard_->Apply(request, std::move(done));
}

void TaskHandler::DoSnapshot(const ps::SnapshotRequest& request, Done<ps::SnapshotReply> done) {
  if (orders_ == Orders::kFromThisProcess) return done(NoOrders());
  shard_->Snapshot(request, std::move(done));
}

void TaskHandler::DoEndTask(const ps::EndTaskRequest& request, Done<ps::EndTaskReply> done) {
  if (end_ == nullptr) {
    return done(absl::FailedPreconditionError(
        "this process has the coordinator: it ends by itself, or by Drain"));
  }
  ps::ErrorDetail detail;
  if (request.run_id() != run_id_) {
    detail.set_kind(ps::ErrorDetail::WRONG_RUN);
    return done(MakeError(detail, "this ps task belongs to another job (run_id differs)"));
  }
  const uint64_t epoch = shard_->epoch();
  if (request.epoch() < epoch) {
    detail.set_kind(ps::ErrorDetail::EPOCH_CHANGED);
    detail.set_epoch(epoch);
    return done(MakeError(
        detail, absl::StrCat("epoch ", request.epoch(), " is over, this task is in ", epoch)));
  }
  if (request.boot_id() != shard_->boot_id()) {
    return done(absl::UnavailableError("this ps task has restarted since it reported its state"));
  }
  end_(request);
  done(ps::EndTaskReply());
}

}  // namespace pushpull
