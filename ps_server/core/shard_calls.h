// The calls of a Coordinator to the shards, and their replies. Plain values.
#ifndef PUSHPULL_PS_SERVER_CORE_SHARD_CALLS_H_
#define PUSHPULL_PS_SERVER_CORE_SHARD_CALLS_H_

#include <variant>

#include "protos/parameter_server.pb.h"

namespace pushpull {

// Calls to shards. Shard 0, which runs in the coordinator's process, is called the same way.
namespace shard_call {
struct GetState {};
struct Restore {
  ps::RestoreRequest request;
};
struct MeasureNorm {
  ps::ApplyRequest request;
};
struct Apply {
  ps::ApplyRequest request;
};
struct Snapshot {
  ps::SnapshotRequest request;
};
}  // namespace shard_call

using ShardCall = std::variant<shard_call::GetState, shard_call::Restore, shard_call::MeasureNorm,
                               shard_call::Apply, shard_call::Snapshot>;
using ShardReply = std::variant<ps::ShardStateReply, ps::RestoreReply, ps::NormReply,
                                ps::ApplyReply, ps::SnapshotReply>;

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_SHARD_CALLS_H_
