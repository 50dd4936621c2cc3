// What goes into and comes out of a ShardAggregator. Plain values; copying shares payload bytes.
//
// A CallId is chosen by the runtime for every call whose answer may come later, unique within the
// process.
#ifndef PUSHPULL_PS_SERVER_CORE_SHARD_EVENTS_H_
#define PUSHPULL_PS_SERVER_CORE_SHARD_EVENTS_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/payload.h"
#include "protos/parameter_server.pb.h"
#include "ps_server/core/version_id.h"

namespace pushpull {

using CallId = uint64_t;

// Slots of a job are numbered below this.
inline constexpr uint32_t kMaxSlots = 256;

// One slot's part of a step on this shard; every chunk is present.
struct StagedContribution {
  uint32_t slot = 0;
  uint64_t samples = 0;
  std::vector<Payload> chunks;
};

// One chunk of a slot's part of a step.
struct StagedChunk {
  uint32_t slot = 0;
  uint64_t samples = 0;
  Payload payload;
};

namespace shard_event {

// Requests of workers. PushChunk is a method of its own: it is answered at once.
struct FinishPush {
  CallId call = 0;
  ps::PushChunk last;  // header of the last chunk; a commit is only looked at with one task
};
struct Pull {
  CallId call = 0;
  ps::PullRequest request;
};
// The peer of a FinishPush or Pull is gone; no answer is wanted any more. Harmless when answered.
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

// Answers of the store to the actions of the same name; exactly one each.
struct StoreRestored {
  absl::StatusOr<std::string> marks;  // as stored with that version (StoreApply::marks), or empty
};
struct StoreMeasured {
  absl::StatusOr<std::vector<double>> squared_norms;
};
struct StoreApplied {
  absl::Status status;
};
// The snapshot's bytes no longer depend on the store's buffer (copied, or written out). Optional:
// StoreSnapshotDone implies it.
struct StoreCaptured {};
struct StoreSnapshotDone {
  absl::StatusOr<ps::SnapshotReply> reply;
};

// The process ends or training was stopped: every waiting and later call of a worker is answered
// with `reason` (ErrorDetail DRAINING or STOPPED). Calls of the coordinator go on.
struct Close {
  absl::Status reason;
};

}  // namespace shard_event

using ShardEvent =
    std::variant<shard_event::FinishPush, shard_event::Pull, shard_event::Cancel,
                 shard_event::Restore, shard_event::MeasureNorm, shard_event::Apply,
                 shard_event::Snapshot, shard_event::StoreRestored, shard_event::StoreMeasured,
                 shard_event::StoreApplied, shard_event::StoreCaptured,
                 shard_event::StoreSnapshotDone, shard_event::Close>;

namespace shard_action {

// Answers. Each call gets exactly one, unless it was cancelled.
struct ReplyPush {
  CallId call = 0;
  absl::StatusOr<ps::PushReply> reply;
};
// Pin this version at once, before the next action is carried out, and send it.
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
// One task: the push is whole and carried its commit. Hand it to the coordinator as
// coordinator_event::Commit with this call; its ReplyCommit answers the push (see PushReplyOf).
struct CommitPush {
  CallId call = 0;
  ps::CommitRequest request;
};

// Orders to the store. At most one of StoreRestore, StoreMeasure and StoreApply is under way at a
// time, and at most one StoreSnapshot beside them.

// Afterwards the store holds that version, under this id, and none that is newer or of another
// history. FAILED_PRECONDITION: memory (MAPPED) or the train_dir (CHECKPOINT) has that number from
// another epoch only.
struct StoreRestore {
  ps::RestoreRequest::Source source = ps::RestoreRequest::MAPPED;
  VersionId id;
};
// Squared norms of the averaged gradient, read from version step - 1 and the contributions.
struct StoreMeasure {
  uint64_t step = 0;
  std::vector<StagedContribution> contributions;  // in slot order
};
// Makes version `step` from step - 1. Without contributions: a plain copy.
struct StoreApply {
  uint64_t step = 0;
  uint64_t epoch = 0;
  std::vector<StagedContribution> contributions;  // in slot order
  std::vector<double> variable_squared_norms;     // over all shards; empty without clipping
  std::string marks;                              // to be kept with version `step`
};
// A chunk of version `step` may be made from step - 1 already, from contributions that the step
// will probably have; nothing is answered. StoreApply keeps what was made from the very
// contributions it names. Comes only while no other order but StoreSnapshot is under way; version
// step - 2 is gone then.
struct StoreApplyAhead {
  uint64_t step = 0;
  uint32_t chunk = 0;
  std::vector<StagedChunk> contributions;  // in slot order
};
// Writes version `step` to the checkpoint's folder, while step + 1 may be applied. `marks` belong
// to it.
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
