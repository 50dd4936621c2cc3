// How the coordinator reaches a shard: in its own process, or over the network.
#ifndef PUSHPULL_PS_SERVER_SERVICE_SHARD_PEER_H_
#define PUSHPULL_PS_SERVER_SERVICE_SHARD_PEER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/ps_client.h"
#include "common/serial_executor.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/service/shard_runtime.h"

namespace pushpull {

// Thread-safe. `done` comes exactly once, from any thread, within a deadline that suits the call.
class ShardPeer {
 public:
  using Done = std::function<void(absl::StatusOr<ShardReply>)>;
  virtual ~ShardPeer() = default;
  virtual void Call(const ShardCall& call, Done done) = 0;
  // Training was stopped or the server drains: workers are turned away with the reason.
  virtual void Close(const absl::Status& reason) = 0;
  // Tells a process of its own that the job has ended; one attempt, which blocks for two seconds at
  // most. OK at once where the shard is in the coordinator's process.
  virtual absl::Status EndTask(const ps::EndTaskRequest& request) = 0;
};

// The runtime must outlive the peer.
std::unique_ptr<ShardPeer> MakeLocalShardPeer(ShardRuntime* runtime);

// Blocks on a thread of its own per kind of call: a snapshot does not hold up an apply. Close does
// nothing: workers hear from the coordinator why training was stopped, and EndTask ends the
// process. The destructor waits for the calls under way.
std::unique_ptr<ShardPeer> MakeRemoteShardPeer(std::unique_ptr<PsClient> client);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_SHARD_PEER_H_
