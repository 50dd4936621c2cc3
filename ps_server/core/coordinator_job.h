// What the parts of the Coordinator share: where the job stands, and what a part asks the
// Coordinator to do. Plain values. The parts are membership.h, scaling.h, steps.h, recovery.h and
// checkpoints.h.
#ifndef PUSHPULL_PS_SERVER_CORE_COORDINATOR_JOB_H_
#define PUSHPULL_PS_SERVER_CORE_COORDINATOR_JOB_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/config/training_length.h"
#include "ps_server/core/coordinator_events.h"

namespace pushpull {

// Written by the Coordinator alone. The parts read it.
struct JobState {
  absl::Duration now = absl::ZeroDuration();  // steady time of the event being handled
  uint64_t epoch = 0;                         // newest persisted one, 0 before the first
  uint64_t version = 0;                       // newest version that every shard has applied
  TrainingLength length;
  bool draining = false;                // the process has been told to end
  bool next_step_is_redivided = false;  // sync: the step after the open one begins with new grants
};

// What a part asks the Coordinator to do after it has handled an event. coordinator.h has a table
// of what it does.
namespace followup {

struct None {};
// Recovery: the epoch is on disk.
struct EpochPersisted {
  uint64_t epoch = 0;
};
// Recovery: the newest checkpoint is known, or that there is none. The shards are asked for their
// state next.
struct CheckpointFound {
  std::optional<FoundCheckpoint> checkpoint;
};
// Make this call to every shard. Their replies, or a failure, go back to the part.
struct CallShards {
  ShardCall call;
};
// Recovery: every shard has restored the version. `marks` are the positions stored with it.
struct Restored {
  uint64_t version = 0;
  std::string marks;
};
// Steps: every shard has applied the step.
struct Applied {
  uint64_t step = 0;
};
// Checkpoints: the newest version that was to be saved is published.
struct Published {};
// Checkpoints: the final checkpoint has failed too often.
struct FinalCheckpointFailed {
  absl::Status reason;
};
// The epoch cannot go on.
struct BeginEpoch {
  std::string why;
};
// Training cannot go on. `call` is a Commit that is refused for this reason, 0 for none.
struct Stop {
  absl::Status reason;
  CallId call = 0;
};

}  // namespace followup

using Followup =
    std::variant<followup::None, followup::EpochPersisted, followup::CheckpointFound,
                 followup::CallShards, followup::Restored, followup::Applied, followup::Published,
                 followup::FinalCheckpointFailed, followup::BeginEpoch, followup::Stop>;

inline void Tell(std::string text, CoordinatorActions* actions) {
  actions->push_back(coordinator_action::Notice{false, std::move(text)});
}

inline void Warn(std::string text, CoordinatorActions* actions) {
  actions->push_back(coordinator_action::Notice{true, std::move(text)});
}

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COORDINATOR_JOB_H_
