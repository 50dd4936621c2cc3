// What a parameter-server task does with each request, without a word about how requests arrive.
// ps_server/service implements it; common/rpc/grpc_ps_server.h serves it over gRPC and
// common/rpc/in_process_ps_client.h calls it directly.
//
// Thread rule: calls come from any thread, several at once. Nothing here may block for longer than
// a short lock: answers that have to wait are given later through `done`, from any thread, exactly
// once, and `done` itself does not block.
#ifndef PUSHPULL_COMMON_PS_HANDLER_H_
#define PUSHPULL_COMMON_PS_HANDLER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/payload.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// One shard at one version, pinned: the bytes stay as they are while a copy of `payload.owner`
// lives.
struct PullSnapshot {
  uint64_t epoch = 0;
  uint64_t version = 0;
  uint32_t shard = 0;
  Payload payload;  // the whole shard, float32
};

// The bytes of one chunk (sharding.h), shared with the snapshot.
Payload ChunkOfSnapshot(const PullSnapshot& snapshot, int chunk);

// Ends a call that waits (the peer went away or its deadline passed). Calling it late or twice is
// harmless; `done` may still come, and is then dropped by the transport.
using CancelFn = std::function<void()>;

class PsHandler {
 public:
  template <typename Reply>
  using Done = std::function<void(absl::StatusOr<Reply>)>;

  virtual ~PsHandler() = default;

  virtual void GetJob(const ps::JobRequest& request, Done<ps::JobReply> done) = 0;
  virtual void Register(const ps::RegisterRequest& request, Done<ps::RegisterReply> done) = 0;
  virtual void Heartbeat(const ps::HeartbeatRequest& request, Done<ps::HeartbeatReply> done) = 0;
  virtual void Commit(const ps::CommitRequest& request, Done<ps::CommitReply> done) = 0;
  virtual void GetStatus(const ps::StatusRequest& request, Done<ps::StatusReply> done) = 0;

  // Operators'. Checkpoint is answered when it is published, Drain and Evict at once.
  virtual void Checkpoint(const ps::CheckpointRequest& request, Done<ps::CheckpointReply> done) = 0;
  virtual void Drain(const ps::DrainRequest& request, Done<ps::DrainReply> done) = 0;
  virtual void Evict(const ps::EvictRequest& request, Done<ps::EvictReply> done) = 0;

  // One chunk; header.payload is empty and header.crc32c as the peer sent it (the handler verifies
  // it, it keeps the payload and so its memory). An error ends the stream with that status.
  virtual absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) = 0;
  // All chunks of the stream have been given. `last` is the header of its last chunk.
  virtual CancelFn FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) = 0;
  virtual CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) = 0;
  // Says whether the worker may have shared memory, and how large the shard is; the transport,
  // whose the memory is, fills in the rest.
  virtual void OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                                Done<ps::OpenSharedMemoryReply> done) = 0;

  virtual void GetShardState(const ps::ShardStateRequest& request,
                             Done<ps::ShardStateReply> done) = 0;
  virtual void Restore(const ps::RestoreRequest& request, Done<ps::RestoreReply> done) = 0;
  virtual void MeasureNorm(const ps::ApplyRequest& request, Done<ps::NormReply> done) = 0;
  virtual void Apply(const ps::ApplyRequest& request, Done<ps::ApplyReply> done) = 0;
  virtual void Snapshot(const ps::SnapshotRequest& request, Done<ps::SnapshotReply> done) = 0;
  virtual void EndTask(const ps::EndTaskRequest& request, Done<ps::EndTaskReply> done) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_PS_HANDLER_H_
