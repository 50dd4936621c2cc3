// The server interface of a parameter-server task: what it does with each request, independent of
// the transport. ps_server/runtime implements it; ps_server/transport/grpc_ps_server.h serves it
// over gRPC and tests/testkit/in_process_ps_client.h calls it directly.
//
// Thread rule: the transport calls from any thread, several at once. An implementation must not
// block except for a short lock. It answers by calling `done` exactly once, from any thread, at
// once or later; `done` does not block.
#ifndef PUSHPULL_COMMON_WIRE_PS_HANDLER_H_
#define PUSHPULL_COMMON_WIRE_PS_HANDLER_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/payload.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// One shard at one version. It is pinned: the bytes do not change while a copy of `payload.owner`
// lives.
struct PullSnapshot {
  uint64_t epoch = 0;
  uint64_t version = 0;
  uint32_t shard = 0;
  Payload payload;  // the whole shard, float32
};

// Returns the bytes of one chunk (sharding.h). They share the owner of the snapshot.
Payload ChunkOfSnapshot(const PullSnapshot& snapshot, int chunk);

// The transport calls this to cancel a waiting call, because the peer went away or its deadline
// passed. Calling it late or twice is harmless. `done` may still be called afterwards; the
// transport then drops the answer.
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

  // Operators' requests. Checkpoint is answered when the checkpoint is published, Drain and Evict
  // at once.
  virtual void Checkpoint(const ps::CheckpointRequest& request, Done<ps::CheckpointReply> done) = 0;
  virtual void Drain(const ps::DrainRequest& request, Done<ps::DrainReply> done) = 0;
  virtual void Evict(const ps::EvictRequest& request, Done<ps::EvictReply> done) = 0;

  // Takes one chunk of a push. header.payload is empty; header.crc32c is what the peer sent, and
  // the handler verifies it. The handler may keep the payload, which keeps its memory alive. An
  // error ends the stream with that status.
  virtual absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) = 0;
  // Called after the last chunk of a stream. `last` is the header of that chunk.
  virtual CancelFn FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) = 0;
  virtual CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) = 0;
  // Answers whether the worker may use shared memory, and how large the shard is. The transport
  // fills in the rest: the memory belongs to the transport.
  virtual void OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                                Done<ps::OpenSharedMemoryReply> done) = 0;

  // The coordinator's requests to a shard.
  virtual void GetShardState(const ps::ShardStateRequest& request,
                             Done<ps::ShardStateReply> done) = 0;
  virtual void Restore(const ps::RestoreRequest& request, Done<ps::RestoreReply> done) = 0;
  virtual void MeasureNorm(const ps::ApplyRequest& request, Done<ps::NormReply> done) = 0;
  virtual void Apply(const ps::ApplyRequest& request, Done<ps::ApplyReply> done) = 0;
  virtual void Snapshot(const ps::SnapshotRequest& request, Done<ps::SnapshotReply> done) = 0;
  virtual void EndTask(const ps::EndTaskRequest& request, Done<ps::EndTaskReply> done) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_PS_HANDLER_H_
