// CountingHandler is a PsHandler that passes every call to another PsHandler and counts it.
#ifndef PUSHPULL_PS_SERVER_MONITORING_COUNTING_HANDLER_H_
#define PUSHPULL_PS_SERVER_MONITORING_COUNTING_HANDLER_H_

#include <memory>

#include "common/wire/ps_handler.h"
#include "ps_server/monitoring/request_counters.h"

namespace pushpull {

// Thread-safe. `inner` must outlive the handler. The counters may outlive the handler: pulls
// that are still being sent hold a reference to them.
//
// A push counts once, with the status code of its answer or of the chunk that was refused. The
// duration of a pull ends when the transport releases the snapshot, after it has handed the last
// byte to the socket.
class CountingHandler final : public PsHandler {
 public:
  CountingHandler(PsHandler* inner, std::shared_ptr<RequestCounters> counters);

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
  // Returns a callback that counts the call and then calls `done`.
  template <typename Reply>
  Done<Reply> Counted(PsMethod method, Done<Reply> done);

  PsHandler* const inner_;
  const std::shared_ptr<RequestCounters> counters_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_COUNTING_HANDLER_H_
