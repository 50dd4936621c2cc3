// The worker's (and the operator's) view of one parameter-server task. Two implementations: gRPC
// (common/rpc/grpc_ps_client.h) and in-process (common/rpc/in_process_ps_client.h), for tests.
//
// Thread-safe. Every call blocks until it is answered or its timeout has passed
// (DEADLINE_EXCEEDED). Errors carry a ps::ErrorDetail (common/error_detail.h) where a program has
// to act on them. UNAVAILABLE means that nothing is known about what the server did; every call is
// safe to repeat with the same arguments.
#ifndef PUSHPULL_COMMON_PS_CLIENT_H_
#define PUSHPULL_COMMON_PS_CLIENT_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/payload.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// One contribution on its way to one shard. Used by one thread. Destroying it before Finish cancels
// the push.
class PushStream {
 public:
  virtual ~PushStream() = default;
  // header.payload stays empty; header.crc32c is filled in here. The bytes must stay unchanged
  // until Finish returns or the stream is destroyed; payload.owner may be kept somewhat longer
  // (until the transport has let go), so with a null owner the memory must outlive the client.
  // Blocks on flow control. Nothing may follow a chunk that carries a commit. An error here is only
  // "the stream broke": call Finish for the reason.
  virtual absl::Status Send(ps::PushChunk header, const Payload& payload) = 0;
  virtual absl::StatusOr<ps::PushReply> Finish() = 0;
};

class PsClient {
 public:
  virtual ~PsClient() = default;

  // Called for each chunk as it arrives, in increasing order of chunk, from the calling thread.
  // Returns where the chunk's size_bytes go, which may be null when there are none; an error ends
  // the pull with that error. header.payload is empty. The checksum is verified where the bytes
  // lie: they are to be trusted only when the pull has succeeded.
  using PullSink =
      absl::FunctionRef<absl::StatusOr<char*>(const ps::PullChunk& header, size_t size_bytes)>;

  // Address of the task, for messages.
  virtual const std::string& address() const = 0;

  virtual absl::StatusOr<ps::JobReply> GetJob(const ps::JobRequest& request,
                                              absl::Duration timeout) = 0;
  virtual absl::StatusOr<ps::RegisterReply> Register(const ps::RegisterRequest& request,
                                                     absl::Duration timeout) = 0;
  virtual absl::StatusOr<ps::HeartbeatReply> Heartbeat(const ps::HeartbeatRequest& request,
                                                       absl::Duration timeout) = 0;
  virtual std::unique_ptr<PushStream> StartPush(absl::Duration timeout) = 0;
  virtual absl::StatusOr<ps::CommitReply> Commit(const ps::CommitRequest& request,
                                                 absl::Duration timeout) = 0;
  virtual absl::Status Pull(const ps::PullRequest& request, absl::Duration timeout,
                            PullSink sink) = 0;
  virtual absl::StatusOr<ps::StatusReply> GetStatus(absl::Duration timeout) = 0;

  // Operators'; task 0 only. A checkpoint takes as long as the disk.
  virtual absl::StatusOr<ps::CheckpointReply> Checkpoint(const ps::CheckpointRequest& request,
                                                         absl::Duration timeout) = 0;
  virtual absl::StatusOr<ps::DrainReply> Drain(const ps::DrainRequest& request,
                                               absl::Duration timeout) = 0;
  // NOT_FOUND: this job has no such clone.
  virtual absl::StatusOr<ps::EvictReply> Evict(const ps::EvictRequest& request,
                                               absl::Duration timeout) = 0;

  // Coordinator to shard.
  virtual absl::StatusOr<ps::ShardStateReply> GetShardState(absl::Duration timeout) = 0;
  virtual absl::StatusOr<ps::RestoreReply> Restore(const ps::RestoreRequest& request,
                                                   absl::Duration timeout) = 0;
  virtual absl::StatusOr<ps::NormReply> MeasureNorm(const ps::ApplyRequest& request,
                                                    absl::Duration timeout) = 0;
  virtual absl::StatusOr<ps::ApplyReply> Apply(const ps::ApplyRequest& request,
                                               absl::Duration timeout) = 0;
  virtual absl::StatusOr<ps::SnapshotReply> Snapshot(const ps::SnapshotRequest& request,
                                                     absl::Duration timeout) = 0;
  virtual absl::StatusOr<ps::EndTaskReply> EndTask(const ps::EndTaskRequest& request,
                                                   absl::Duration timeout) = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_PS_CLIENT_H_
