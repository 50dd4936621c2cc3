// The events that go into a Coordinator and the actions that come out. Plain values.
#ifndef PUSHPULL_PS_SERVER_CORE_COORDINATOR_EVENTS_H_
#define PUSHPULL_PS_SERVER_CORE_COORDINATOR_EVENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/shard_calls.h"
#include "ps_server/core/shard_events.h"
#include "ps_server/core/version_id.h"

namespace pushpull {

using RpcId = uint64_t;

// A published checkpoint that verifies.
struct FoundCheckpoint {
  VersionId id;                // its step, and the epoch in which it was published
  bool training_done = false;  // it was the last one of the run when it was published
  uint64_t num_images = 0;     // as in PublishCheckpoint
  uint32_t num_replicas = 0;   // async: it has the positions of this many replicas; 0: of none
  // The time since it was saved. Infinite if that is not known, because by the wall clock it was
  // saved in the future.
  absl::Duration age = absl::ZeroDuration();
};

namespace coordinator_event {

// The first event of a process. stored_epoch is the content of the EPOCH file, 0 if there is none.
struct Start {
  uint64_t stored_epoch = 0;
};
// Each of the next five events answers an action: EpochPersisted answers PersistEpoch, and so on.
struct EpochPersisted {
  uint64_t epoch = 0;
  absl::Status status;
};
// The newest checkpoint that verifies; nothing if no checkpoint was ever published. An error means
// that checkpoints exist but none verifies. It stops the job, which never starts afresh by itself.
struct CheckpointFound {
  absl::StatusOr<std::optional<FoundCheckpoint>> checkpoint;
};
struct TookOver {
  absl::Status status;
};
struct ReplicasPersisted {
  uint32_t num_replicas = 0;
  absl::Status status;
};
// ABORTED: another server has taken over the train_dir, and this server must end.
struct CheckpointPublished {
  uint64_t step = 0;
  absl::Status status;
};
// Answers a CallShard with the reply of the matching type or an error. The runtime must give every
// call a deadline: the coordinator never repeats a call that gets no answer.
struct ShardReplied {
  RpcId rpc = 0;
  absl::StatusOr<ShardReply> reply;
};

// Requests of clones. Cancel: the caller of a Commit or Checkpoint is gone and wants no answer.
struct Register {
  CallId call = 0;
  ps::RegisterRequest request;
};
struct Heartbeat {
  CallId call = 0;
  ps::HeartbeatRequest request;
};
struct Commit {
  CallId call = 0;
  ps::CommitRequest request;
};
struct Cancel {
  CallId call = 0;
};

// Requests of administrators. A Checkpoint call is answered when a checkpoint of at least the
// version applied now is published, or with the error that prevented it.
struct Checkpoint {
  CallId call = 0;
};
// Ends the clone's lease at once. The clone's later requests are refused while this process lives.
struct Evict {
  CallId call = 0;
  ps::EvictRequest request;
};
// Changes the number of replicas (sync). Answered when the number is on disk, or with an error.
struct Scale {
  CallId call = 0;
  ps::ScaleRequest request;
};
// Finishes or gives up the open step (Steps::IsGivenUpBy), publishes a checkpoint, then gives
// Drained.
struct Drain {
  CallId call = 0;  // 0: SIGTERM, which expects no answer
};
// The time that NextWakeup returned has come.
struct Tick {};

}  // namespace coordinator_event

using CoordinatorEvent =
    std::variant<coordinator_event::Start, coordinator_event::EpochPersisted,
                 coordinator_event::CheckpointFound, coordinator_event::TookOver,
                 coordinator_event::ReplicasPersisted, coordinator_event::CheckpointPublished,
                 coordinator_event::ShardReplied, coordinator_event::Register,
                 coordinator_event::Heartbeat, coordinator_event::Commit, coordinator_event::Cancel,
                 coordinator_event::Checkpoint, coordinator_event::Evict, coordinator_event::Scale,
                 coordinator_event::Drain, coordinator_event::Tick>;

namespace coordinator_action {

// Write the EPOCH file; fsync the file and its folder.
struct PersistEpoch {
  uint64_t epoch = 0;
};
// Find the newest checkpoint. Carried out only after a PublishCheckpoint under way has finished.
struct FindCheckpoint {};
// Recovery has succeeded: write the new server's files into train_dir (pipeline.config, an event
// file) and remove what a killed server left there. Happens once per process. Before it, only LOCK,
// run_id, EPOCH and peer_secret are written in train_dir, and checkpoints that were not published
// and folders .trash-* are removed or given their names back (run_state.h).
struct TakeOver {
  uint64_t version = 0;  // the one that the shards have restored
};
// Write the number of replicas that an administrator has set to train_dir; fsync it. The next
// process begins with it: CoordinatorOptions::scaled.
struct PersistReplicas {
  uint32_t num_replicas = 0;
};
struct CallShard {
  RpcId rpc = 0;
  uint32_t shard = 0;
  ShardCall call;
};
// Every shard has written its files of this step: write the manifest and rename the folder.
struct PublishCheckpoint {
  uint64_t step = 0;
  uint64_t epoch = 0;
  bool training_done = false;  // no step follows
  // The last step of the run, and the number of its training images, as far as they are known and
  // limit the run; else 0.
  uint64_t last_step = 0;
  uint64_t num_images = 0;
  std::vector<std::string> devices;  // as Membership::Devices returns them
  std::vector<ps::SnapshotReply> shards;
};
// A checkpoint that was begun is not published: remove its temporary folder.
struct AbandonCheckpoint {
  uint64_t step = 0;
};

// Answers. Each call gets exactly one, unless it was cancelled.
struct ReplyRegister {
  CallId call = 0;
  absl::StatusOr<ps::RegisterReply> reply;
};
struct ReplyHeartbeat {
  CallId call = 0;
  absl::StatusOr<ps::HeartbeatReply> reply;
};
struct ReplyCommit {
  CallId call = 0;
  absl::StatusOr<ps::CommitReply> reply;
};
struct ReplyCheckpoint {
  CallId call = 0;
  absl::StatusOr<ps::CheckpointReply> reply;
};
struct ReplyEvict {
  CallId call = 0;
  absl::StatusOr<ps::EvictReply> reply;
};
struct ReplyScale {
  CallId call = 0;
  absl::StatusOr<ps::ScaleReply> reply;
};
struct ReplyDrain {
  CallId call = 0;
  absl::StatusOr<ps::DrainReply> reply;
};
// An administrator has told the process to end. It ends once Drained, Finished or Stopped has come.
struct EndWanted {};

// For metrics: every shard has applied the step.
struct StepApplied {
  struct Part {
    uint32_t replica = 0;
    uint32_t worker_id = 0;
    uint64_t samples = 0;  // 0: void, left out of the step
    std::vector<ps::Metric> metrics;
  };
  uint64_t step = 0;
  uint64_t last_step = 0;   // of the run; 0: it has none
  std::vector<Part> parts;  // in order of `replica`
  uint64_t staleness = 0;   // async: the version before the step minus the push's base_version
  uint32_t missing_replicas = 0;  // sync: replicas that the step went on without
};
// All shards serve this version under this epoch. Clones may register from now on.
struct Serving {
  uint64_t epoch = 0;
  uint64_t version = 0;
  ps::RestoreRequest::Source source = ps::RestoreRequest::MAPPED;
  uint64_t rolled_back_steps = 0;
};
// A sentence for the log.
struct Notice {
  bool warning = false;
  std::string text;
  // The notice is about a spare. Any process can register as one, so the log of them is limited.
  bool about_spare = false;
};
// The last step is applied and the final checkpoint is published.
struct Finished {};
// The process may end. A checkpoint of the last applied step is published; where that failed, a
// Notice said so.
struct Drained {};
// A failure has stopped training. Hand `reason` to the shards as shard_event::Close, so that clones
// are told. ABORTED: another server goes on with the job, and clones are told to try again.
struct Stopped {
  absl::Status reason;
};

}  // namespace coordinator_action

using CoordinatorAction = std::variant<
    coordinator_action::PersistEpoch, coordinator_action::FindCheckpoint,
    coordinator_action::TakeOver, coordinator_action::PersistReplicas,
    coordinator_action::CallShard, coordinator_action::PublishCheckpoint,
    coordinator_action::AbandonCheckpoint, coordinator_action::ReplyRegister,
    coordinator_action::ReplyHeartbeat, coordinator_action::ReplyCommit,
    coordinator_action::ReplyCheckpoint, coordinator_action::ReplyEvict,
    coordinator_action::ReplyScale, coordinator_action::ReplyDrain, coordinator_action::EndWanted,
    coordinator_action::StepApplied, coordinator_action::Serving, coordinator_action::Notice,
    coordinator_action::Finished, coordinator_action::Drained, coordinator_action::Stopped>;
using CoordinatorActions = std::vector<CoordinatorAction>;

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COORDINATOR_EVENTS_H_
