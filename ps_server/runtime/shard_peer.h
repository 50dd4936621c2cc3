// ShardPeer is the coordinator's connection to a shard, in the same process or over the network.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_SHARD_PEER_H_
#define PUSHPULL_PS_SERVER_RUNTIME_SHARD_PEER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/serial_executor.h"
#include "common/wire/ps_client.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/runtime/shard_runtime.h"

namespace pushpull {

// Thread-safe.
class ShardPeer {
 public:
  using Done = std::function<void(absl::StatusOr<ShardReply>)>;
  virtual ~ShardPeer() = default;
  // Starts a call. `done` is called exactly once, from any thread, possibly before Call
  // returns. Does not block. A remote call fails with DEADLINE_EXCEEDED after 5 seconds
  // (GetState), 60 seconds (MeasureNorm, Apply) or 10 minutes (Restore, Snapshot).
  virtual void Call(const ShardCall& call, Done done) = 0;
  // Makes the shard refuse clones with `reason`: training was stopped or the server is draining.
  virtual void Close(const absl::Status& reason) = 0;
  // Tells a shard in another process that the job has ended. Makes one attempt, which blocks
  // for at most two seconds. For a shard in the coordinator's process it returns OK at once.
  virtual absl::Status EndTask(const ps::EndTaskRequest& request) = 0;
  // Blocks until the calls that were made are answered, and ends the peer's threads. A call that a
  // shard in another process does not answer soon fails with DEADLINE_EXCEEDED. Later calls are
  // dropped unanswered.
  virtual void Stop() = 0;
};

// `runtime` must outlive the peer. A stopped runtime drops its calls unanswered
// (ShardRuntime::Stop).
std::unique_ptr<ShardPeer> MakeLocalShardPeer(ShardRuntime* runtime);

// The remote peer makes its blocking calls on three threads: one for GetState, one for Snapshot,
// and one for the rest, so that a snapshot does not delay an apply. Its Close does nothing:
// clones learn from the coordinator why training was stopped, and EndTask ends the process.
std::unique_ptr<ShardPeer> MakeRemoteShardPeer(std::unique_ptr<PsClient> client);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_SHARD_PEER_H_
