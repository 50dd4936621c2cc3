// TaskHandler answers every request to one ps task. It passes requests about the shard to the
// ShardRuntime, and requests about the job to the CoordinatorRuntime, which only task 0 has.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_TASK_HANDLER_H_
#define PUSHPULL_PS_SERVER_RUNTIME_TASK_HANDLER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/wire/ps_handler.h"
#include "ps_server/runtime/coordinator_runtime.h"
#include "ps_server/runtime/job_spec.h"
#include "ps_server/runtime/shard_runtime.h"

namespace pushpull {

// Thread-safe. `job`, `shard` and `coordinator` must outlive the handler.
class TaskHandler final : public PsHandler {
 public:
  // From whom the shard takes orders (Restore, MeasureNorm, Apply, Snapshot). With
  // kFromThisProcess the coordinator calls the ShardRuntime directly, and orders from the
  // network are refused with PERMISSION_DENIED.
  enum class Orders { kFromPeers, kFromThisProcess };
  // Called when the coordinator in another process has told this task to end. Must not block.
  using EndFn = std::function<void(const ps::EndTaskRequest&)>;

  // run_id: 16 bytes. coordinator: null in every task but task 0; requests about the job then fail
  // with FAILED_PRECONDITION. end: null in the coordinator's process.
  TaskHandler(const JobSpec* job, std::string run_id, ShardRuntime* shard,
              CoordinatorRuntime* coordinator, Orders orders, EndFn end);

  // Sets the addresses of all tasks, which GetJob returns. GetJob fails with NOT_READY before
  // this call.
  void SetAddresses(std::vector<std::string> addresses);

  void GetJob(const ps::JobRequest& request, Done<ps::JobReply> done) override;
  void Register(const ps::RegisterRequest& request, Done<ps::RegisterReply> done) override;
  void Heartbeat(const ps::HeartbeatRequest& request, Done<ps::HeartbeatReply> done) override;
  void Commit(const ps::CommitRequest& request, Done<ps::CommitReply> done) override;
  void GetStatus(const ps::StatusRequest& request, Done<ps::StatusReply> done) override;

  void Checkpoint(const ps::CheckpointRequest& request, Done<ps::CheckpointReply> done) override;
  void Drain(const ps::DrainRequest& request, Done<ps::DrainReply> done) override;
  void Evict(const ps::EvictRequest& request, Done<ps::EvictReply> done) override;

  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) override;
  CancelFn FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) override;
  CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) override;
  void OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                        Done<ps::OpenSharedMemoryReply> done) override;

  void GetShardState(const ps::ShardStateRequest& request, Done<ps::ShardStateReply> done) override;
  void Restore(const ps::RestoreRequest& request, Done<ps::RestoreReply> done) override;
  void MeasureNorm(const ps::ApplyRequest& request, Done<ps::NormReply> done) override;
  void Apply(const ps::ApplyRequest& request, Done<ps::ApplyReply> done) override;
  void Snapshot(const ps::SnapshotRequest& request, Done<ps::SnapshotReply> done) override;
  void EndTask(const ps::EndTaskRequest& request, Done<ps::EndTaskReply> done) override;

 private:
  const JobSpec* const job_;
  const std::string run_id_;
  ShardRuntime* const shard_;
  CoordinatorRuntime* const coordinator_;
  const Orders orders_;
  const EndFn end_;
  absl::Mutex mutex_;
  std::vector<std::string> addresses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_TASK_HANDLER_H_
