// Describes a job and its time limits to the Coordinator. Immutable while the coordinator lives.
#ifndef PUSHPULL_PS_SERVER_CORE_COORDINATOR_OPTIONS_H_
#define PUSHPULL_PS_SERVER_CORE_COORDINATOR_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/config/training_length.h"
#include "common/model/variable_entries.h"
#include "common/wire/default_lease.h"
#include "protos/parameter_server.pb.h"
#include "ps_server/core/epochs.h"

namespace pushpull {

enum class NonFinitePolicy { kStop, kSkip };

struct CoordinatorOptions {
  std::string run_id;  // 16 bytes
  uint32_t tasks = 1;
  bool sync = true;
  TrainingLimits limits = {};  // sync: batch_size is at least num_replicas
  // Replicas of the job. 0: as many as the restored version has positions of (async), or as the
  // first clone announces.
  uint32_t num_replicas = 0;
  bool scaled = false;           // num_replicas is what an administrator has set by Scale
  bool shares_by_speed = false;  // sync: train_config.replica_shares is BY_SPEED
  std::string fingerprint;       // JobReply.fingerprint; clones that say another one are refused
  std::string layout_signature;
  std::vector<ps::VariableEntry> variables;
  // External model: the variables as they were declared, before train_config was applied. Clones
  // must announce the same attributes. Empty for other models: their attributes are those of the
  // config, and a clone is refused that has frozen a variable which is not frozen there.
  std::vector<ps::VariableEntry> declared;

  // The user wants to go back to a checkpoint: until the job serves for the first time, recovery
  // ignores the versions in the shards' memory.
  bool from_checkpoint = false;

  absl::Duration lease = kDefaultLease;
  // Sync: a step goes on without the missing replicas when this time has passed since its first
  // commit and at least min_contributors replicas have committed a contribution that is not void.
  // A replica that keeps missing steps costs the deadline only once. If either option is 0, every
  // step waits for all replicas.
  absl::Duration step_deadline = absl::ZeroDuration();
  uint32_t min_contributors = 0;
  uint64_t max_staleness = 0;  // in versions, async only; 0: unbounded
  NonFinitePolicy non_finite_policy = NonFinitePolicy::kStop;
  uint32_t max_void_steps = 10;  // this many steps in a row without a contribution stop training
  bool measure_norms = false;    // clipping or LAMB: the shards measure norms before each apply

  absl::Duration save_checkpoints_every = absl::Seconds(600);  // 0: by steps, and at the end
  uint64_t save_checkpoints_steps = 0;                         // 0: by time, and at the end

  absl::Duration drain_patience = absl::Seconds(5);  // a drain's wait for a step with commits
  // A drain ends without its checkpoint after this time, for example because a shard is
  // unreachable.
  absl::Duration drain_limit = absl::Seconds(25);
  // How long errors that may pass, such as a full disk, are awaited before the server stops: those
  // of beginning an epoch, and those of writing the final checkpoint unless the process drains. It
  // is shorter than the default --peer_deadline of clones, so that they are still there for the
  // server that is started next.
  absl::Duration disk_patience = absl::Minutes(2);
  absl::Duration shard_poll = absl::Seconds(1);  // how often GetState looks for restarted shards
  // Back-off of repeated calls to a shard: starts at first_retry, doubles up to last_retry.
  absl::Duration first_retry = absl::Milliseconds(50);
  absl::Duration last_retry = absl::Seconds(2);
  EpochPace::Options epoch_pace = {};
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COORDINATOR_OPTIONS_H_
