// What goes into and comes out of a Coordinator. Plain values.
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
#include "ps_server/core/shard_events.h"
#include "ps_server/core/version_id.h"

namespace pushpull {

using RpcId = uint64_t;

// Calls to shards, shard 0 of the own process included.
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

namespace coordinator_event {

// First event of a process. stored_epoch: what the EPOCH file holds, 0 when there is none.
struct Start {
  uint64_t stored_epoch = 0;
};
// Answers to the actions of the same name.
struct EpochPersisted {
  uint64_t epoch = 0;
  absl::Status status;
};
// The newest checkpoint that verifies (its step, and the epoch in which it was published), or
// nothing if there never was one. An error (one exists but none verifies) stops the job: it never
// starts afresh by itself.
struct CheckpointFound {
  absl::StatusOr<std::optional<VersionId>> checkpoint;
};
struct TookOver {
  absl::Status status;
};
// status ABORTED: another server has taken the train_dir over; this one has to end.
struct CheckpointPublished {
  uint64_t step = 0;
  absl::Status status;
};
// Answer to a CallShard: the reply of the matching type, or an error. Calls need a deadline; one
// that is never answered is never repeated.
struct ShardReplied {
  RpcId rpc = 0;
  absl::StatusOr<ShardReply> reply;
};

// Requests of workers.
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

// Requests of operators. Checkpoint is answered when one of at least the version applied now is
// published, or could not be.
struct Checkpoint {
  CallId call = 0;
};
// The clone's lease ends now; it and its later requests are refused while this process lives.
struct Evict {
  CallId call = 0;
  ps::EvictRequest request;
};
// Finish or give up the open step, publish a checkpoint, then Drained.
struct Drain {
  CallId call = 0;  // 0: SIGTERM, which waits for no answer
};
// NextWakeup has come.
struct Tick {};

}  // namespace coordinator_event

using CoordinatorEvent = std::variant<
    coordinator_event::Start, coordinator_event::EpochPersisted, coordinator_event::CheckpointFound,
    coordinator_event::TookOver, coordinator_event::CheckpointPublished,
    coordinator_event::ShardReplied, coordinator_event::Register, coordinator_event::Heartbeat,
    coordinator_event::Commit, coordinator_event::Cancel, coordinator_event::Checkpoint,
    coordinator_event::Evict, coordinator_event::Drain, coordinator_event::Tick>;

namespace coordinator_action {

// Write the EPOCH file and fsync it and its folder.
struct PersistEpoch {
  uint64_t epoch = 0;
};
// To be carried out after a PublishCheckpoint that is still under way.
struct FindCheckpoint {};
// Recovery has succeeded: write what belongs to the new server into train_dir (pipeline.config, an
// event file) and remove what a killed one left. Once per process; nothing else in train_dir but
// run_id and EPOCH changes before.
struct TakeOver {};
struct CallShard {
  RpcId rpc = 0;
  uint32_t shard = 0;
  ShardCall call;
};
// All shards have written their files of this step: write the manifest and rename.
struct PublishCheckpoint {
  uint64_t step = 0;
  uint64_t epoch = 0;
  bool training_done = false;
  std::vector<ps::SnapshotReply> shards;
};
// A checkpoint that was begun will not be published: remove its temporary folder.
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
struct ReplyDrain {
  CallId call = 0;
  absl::StatusOr<ps::DrainReply> reply;
};
// An operator has told the process to end: as soon as Drained, Finished or Stopped has come.
struct EndWanted {};

// For metrics: a step is visible on all shards.
struct StepApplied {
  struct Part {
    uint32_t slot = 0;
    uint32_t worker_id = 0;
    uint64_t samples = 0;  // 0: void, left out
    std::vector<ps::Metric> metrics;
  };
  uint64_t step = 0;
  std::vector<Part> parts;     // in slot order
  uint64_t staleness = 0;      // async
  uint32_t missing_slots = 0;  // policy drop
};
// All shards serve this version under this epoch; workers may register.
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
  bool about_spare = false;  // a clone without a slot of its own: anybody can be one
};
// num_steps are applied and the final checkpoint is published.
struct Finished {};
// A checkpoint of the last applied step is published (or could not be: see Notice). The process may
// end.
struct Drained {};
// Training was stopped by a failure; workers are told. Hand `reason` to the shards as
// shard_event::Close. ABORTED: another server goes on with the job, so workers are told to try
// again.
struct Stopped {
  absl::Status reason;
};

}  // namespace coordinator_action

using CoordinatorAction = std::variant<
    coordinator_action::PersistEpoch, coordinator_action::FindCheckpoint,
    coordinator_action::TakeOver, coordinator_action::CallShard,
    coordinator_action::PublishCheckpoint, coordinator_action::AbandonCheckpoint,
    coordinator_action::ReplyRegister, coordinator_action::ReplyHeartbeat,
    coordinator_action::ReplyCommit, coordinator_action::ReplyCheckpoint,
    coordinator_action::ReplyEvict, coordinator_action::ReplyDrain, coordinator_action::EndWanted,
    coordinator_action::StepApplied, coordinator_action::Serving, coordinator_action::Notice,
    coordinator_action::Finished, coordinator_action::Drained, coordinator_action::Stopped>;
using CoordinatorActions = std::vector<CoordinatorAction>;

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COORDINATOR_EVENTS_H_
