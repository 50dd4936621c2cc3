// Which version a job goes on from after a start or a failure. Pure.
#ifndef PUSHPULL_PS_SERVER_CORE_RECOVERY_H_
#define PUSHPULL_PS_SERVER_CORE_RECOVERY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "protos/parameter_server.pb.h"
#include "ps_server/core/version_id.h"

namespace pushpull {

struct RestorePoint {
  ps::RestoreRequest::Source source = ps::RestoreRequest::INITIAL;
  VersionId id;
  // Below the highest version known of the newest history.
  uint64_t rolled_back_steps = 0;
  // What the shards hold but the job does not go on from, although its number does not tell why.
  // Whole sentences, for the log.
  std::vector<std::string> warnings;
};

// The newest version (by epoch, then number) that every shard holds for this run, unless the
// checkpoint is newer; else the checkpoint; else the initial variables.
//
// A version in memory is as new as the checkpoint if it is the checkpoint's, or if its number is
// higher and its epoch not older. A higher number from an older epoch belongs to a history that the
// job has left: when the checkpoint was published, every shard had dropped it. It can only come
// from a state file that was elsewhere at that time.
//
// checkpoint: its step and the epoch in which it was published. known_version: the highest that the
// coordinator itself knows of.
RestorePoint ChooseRestorePoint(const std::string& run_id,
                                const std::vector<ps::ShardStateReply>& shards,
                                std::optional<VersionId> checkpoint, uint64_t known_version);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_RECOVERY_H_
