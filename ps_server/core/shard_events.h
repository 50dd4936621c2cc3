// The events that go into a ShardAggregator and the actions that come out. Plain values; copies
// share the payload bytes.
//
// The runtime chooses a CallId for every call that may be answered later. Ids are unique within the
// process.
#ifndef PUSHPULL_PS_SERVER_CORE_SHARD_EVENTS_H_
#define PUSHPULL_PS_SERVER_CORE_SHARD_EVENTS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/wire/encoded_chunk.h"
#include "protos/parameter_server.pb.h"
#include "ps_server/core/version_id.h"

namespace pushpull {

using CallId = uint64_t;

// The replicas of a job are numbered below this.
inline constexpr uint32_t kMaxReplicas = 256;

// The part of a replica's contribution that belongs to this shard, with every chunk.
struct StagedContribution {
  uint32_t replica = 0;
  uint64_t samples = 0;
  std::vector<EncodedChunk> chunks;
};

// One chunk of a replica's contribution.
struct StagedChunk {
  uint32_t replica = 0;
  uint64_t samples = 0;
  EncodedChunk chunk;
};

namespace shard_event {

// Requests of clones. PushChunk is not among them: it is a method, because its answer is
// immediate.
struct FinishPush {
  CallId call = 0;
  ps::PushChunk last;  // header of the last chunk; its commit counts only with one task
};
struct Pull {
  CallId call = 0;
  ps::PullRequest request;
};
// The caller of a FinishPush or Pull is gone and wants no answer. Harmless after the answer.
struct Cancel {
  CallId call = 0;
};

// Requests of the coordinator.
struct Restore {
  CallId call = 0;
  ps::RestoreRequest request;
};
struct MeasureNorm {
  CallId call = 0;
  ps::ApplyRequest request;
};
struct Apply {
  CallId call = 0;
  ps::ApplyRequest request;
};
struct Snapshot {
  CallId call = 0;
  ps::SnapshotRequest request;
};

// The store answers each StoreRestore, StoreMeasure, StoreApply and StoreSnapshot with exactly one
// of these.
struct StoreRestored {
  absl::StatusOr<std::string> marks;  // stored with the version (StoreApply::marks), or empty
};
struct StoreMeasured {
  absl::StatusOr<std::vector<double>> squared_norms;
};
struct StoreApplied {
  absl::Status status;
};
struct StoreSnapshotDone {
  absl::StatusOr<ps::SnapshotReply> reply;
};

// The process ends or training was stopped. Every waiting or later call of a clone is answered
// with `reason` (ErrorDetail DRAINING or STOPPED). Calls of the coordinator are still served.
struct Close {
  absl::Status reason;
};

}  // namespace shard_event

using ShardEvent =
    std::variant<shard_event::FinishPush, shard_event::Pull, shard_event::Cancel,
                 shard_event::Restore, shard_event::MeasureNorm, shard_event::Apply,
                 shard_event::Snapshot, shard_event::StoreRestored, shard_event::StoreMeasured,
                 shard_event::StoreApplied, shard_event::StoreSnapshotDone, shard_event::Close>;

namespace shard_action {

// Answers. Each call gets exactly one, unless it was cancelled.
struct ReplyPush {
  CallId call = 0;
  absl::StatusOr<ps::PushReply> reply;
};
// Pin this version before carrying out the next action, and send it.
struct ServePull {
  CallId call = 0;
  uint64_t epoch = 0;
  uint64_t version = 0;
};
struct RefusePull {
  CallId call = 0;
  absl::Status status;
};
struct ReplyRestore {
  CallId call = 0;
  absl::StatusOr<ps::RestoreReply> reply;
};
struct ReplyNorm {
  CallId call = 0;
  absl::StatusOr<ps::NormReply> reply;
};
struct ReplyApply {
  CallId call = 0;
  absl::StatusOr<ps::ApplyReply> reply;
};
struct ReplySnapshot {
  CallId call = 0;
  absl::StatusOr<ps::SnapshotReply> reply;
};
// With one task: the push is complete and carried its commit. Hand it to the coordinator as a
// coordinator_event::Commit with the same call. The ReplyCommit answers the push (see PushReplyOf).
struct CommitPush {
  CallId call = 0;
  ps::CommitRequest request;
};

// Orders to the store. At most one StoreRestore, StoreMeasure or StoreApply is under way at a time,
// and at most one StoreSnapshot beside it.

// Restore the version. Afterwards the store holds it under this id, and no version that is newer or
// belongs to another history. FAILED_PRECONDITION: the memory (MAPPED) or the train_dir
// (CHECKPOINT) has this number only from another epoch. UNAVAILABLE: the order is not of this job.
struct StoreRestore {
  ps::RestoreRequest::Source source = ps::RestoreRequest::MAPPED;
  VersionId id;
  int tasks = 0;  // of the job that gives the order; 0: not said
};
// Compute the squared norms that version `step` needs, from version step - 1 and the contributions.
struct StoreMeasure {
  uint64_t step = 0;
  std::vector<StagedContribution> contributions;  // in replica order
};
// Make version `step` from step - 1. Without contributions the new version is a plain copy.
struct StoreApply {
  uint64_t step = 0;
  uint64_t epoch = 0;
  std::vector<StagedContribution> contributions;  // in replica order
  std::vector<double> variable_squared_norms;     // summed over all shards; may be empty
  std::string marks;                              // to store with version `step`
};
// The store may make this chunk of version `step` from step - 1 already, from the contributions
// that the step will probably have. There is no answer. StoreApply keeps a chunk that was made from
// exactly the contributions it names, and makes all other chunks. Given only while no order
// except StoreSnapshot is under way. Version step - 2 is gone from then on.
struct StoreApplyAhead {
  uint64_t step = 0;
  uint32_t chunk = 0;
  std::vector<StagedChunk> contributions;  // in replica order
};
// Write version `step` and its `marks` to the checkpoint's folder. Step + 1 may be applied
// meanwhile.
struct StoreSnapshot {
  uint64_t step = 0;
  std::string marks;
};

}  // namespace shard_action

using ShardAction =
    std::variant<shard_action::ReplyPush, shard_action::ServePull, shard_action::RefusePull,
                 shard_action::ReplyRestore, shard_action::ReplyNorm, shard_action::ReplyApply,
                 shard_action::ReplySnapshot, shard_action::CommitPush, shard_action::StoreRestore,
                 shard_action::StoreMeasure, shard_action::StoreApply,
                 shard_action::StoreApplyAhead, shard_action::StoreSnapshot>;
using ShardActions = std::vector<ShardAction>;

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_SHARD_EVENTS_H_
