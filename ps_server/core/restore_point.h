// Chooses the version from which a job continues after a start or a failure. Thread-safe, without
// state.
#ifndef PUSHPULL_PS_SERVER_CORE_RESTORE_POINT_H_
#define PUSHPULL_PS_SERVER_CORE_RESTORE_POINT_H_

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
  // How far `id` lies below the highest known version of the newest history.
  uint64_t rolled_back_steps = 0;
  // Versions that shards hold but that are not used although their number is not lower than that of
  // `id`, with the reason. Whole sentences, for the log.
  std::vector<std::string> warnings;
};

// Chooses the newest version (by epoch, then number) that every shard holds for this run, if it is
// as new as the checkpoint; else the checkpoint; else the initial variables.
//
// A version in memory is as new as the checkpoint if it is the checkpoint's own version, or if its
// number is higher and its epoch is not older. A higher number from an older epoch belongs to a
// history that the job has left: when the checkpoint was published, every shard had dropped that
// version. It can only come from a state file that was elsewhere at that time.
//
// `checkpoint` is the newest checkpoint's step and the epoch in which it was published.
// `known_version` is the highest version that the coordinator itself knows of.
RestorePoint ChooseRestorePoint(const std::string& run_id,
                                const std::vector<ps::ShardStateReply>& shards,
                                std::optional<VersionId> checkpoint, uint64_t known_version);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_RESTORE_POINT_H_
