// What a job is and how patient it is. Immutable while the coordinator lives.
#ifndef PUSHPULL_PS_SERVER_CORE_COORDINATOR_OPTIONS_H_
#define PUSHPULL_PS_SERVER_CORE_COORDINATOR_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/variable_entries.h"
#include "protos/parameter_server.pb.h"
#include "ps_server/core/epochs.h"

namespace pushpull {

enum class NonFinitePolicy { kStop, kSkip };

struct CoordinatorOptions {
  std::string run_id;  // 16 bytes
  uint32_t tasks = 1;
  bool sync = true;
  uint64_t num_steps = 0;  // 0: without end
  uint32_t num_slots = 0;  // 0: what the first worker announces
  std::string layout_signature;
  std::vector<ps::VariableEntry> variables;

  // Until the job serves for the first time, versions in the shards' memory are not gone on from:
  // the user wants an earlier checkpoint.
  bool from_checkpoint = false;

  absl::Duration lease = absl::Seconds(10);
  // Sync: a step goes on without the missing slots once so long has passed since its first commit,
  // if at least min_contributors slots committed. 0 (either): wait for all.
  absl::Duration step_deadline = absl::ZeroDuration();
  uint32_t min_contributors = 0;
  uint64_t max_staleness = 0;  // async; 0: unbounded
  NonFinitePolicy non_finite_policy = NonFinitePolicy::kStop;
  uint32_t max_void_steps = 10;  // so many in a row without any contribution stop training
  bool measure_norms = false;    // clipping: a norm phase before each apply

  absl::Duration save_checkpoints_every = absl::Seconds(600);  // 0: only at the end
  uint64_t save_checkpoints_steps = 0;                         // 0: by time only

  absl::Duration drain_patience = absl::Seconds(5);  // for an open step that has commits
  // A drain that has not got its checkpoint by then (a shard is out of reach) ends without one.
  absl::Duration drain_limit = absl::Seconds(25);
  absl::Duration shard_poll = absl::Seconds(1);  // GetState of every shard, to notice restarts
  absl::Duration first_retry = absl::Milliseconds(50);
  absl::Duration last_retry = absl::Seconds(2);
  EpochPace::Options epoch_pace = {};
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COORDINATOR_OPTIONS_H_
