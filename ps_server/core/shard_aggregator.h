// One shard of the variables: stages pushed chunks, applies what the coordinator has decided and
// answers pulls. docs/PROTOCOL.md describes the protocol.
//
// A pure state machine without threads, sockets, files or a clock: the runtime feeds events and
// carries out the actions in order. Not thread-safe; the runtime's lock around a call is held for
// microseconds, because no call touches tensor bytes.
#ifndef PUSHPULL_PS_SERVER_CORE_SHARD_AGGREGATOR_H_
#define PUSHPULL_PS_SERVER_CORE_SHARD_AGGREGATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/payload.h"
#include "common/model/sharding.h"
#include "protos/parameter_server.pb.h"
#include "ps_server/core/expected_contributions.h"
#include "ps_server/core/shard_events.h"
#include "ps_server/core/staging.h"

namespace pushpull {

struct ShardOptions {
  std::string run_id;    // 16 bytes
  uint64_t boot_id = 0;  // drawn at random by each process, not 0
  bool sync = true;
  uint32_t shard = 0;
  uint32_t tasks = 1;
  std::vector<int64_t> chunk_elements;  // of this shard: ChunkElements(sharding, shard)
  // The versions in the mapped state of this run at the start, newest last.
  std::vector<VersionId> held_versions;
};

// Returns the number of elements in each chunk of the shard, for ShardOptions.
std::vector<int64_t> ChunkElements(const Sharding& sharding, int shard);

// Converts the coordinator's answer to CommitPush into the answer to the push.
absl::StatusOr<ps::PushReply> PushReplyOf(const absl::StatusOr<ps::CommitReply>& commit);

class ShardAggregator {
 public:
  explicit ShardAggregator(ShardOptions options);

  // Stages one chunk of a contribution. `verdict` is the result of VerifyChunk (chunk_verifier.h),
  // computed outside the lock. Returns OK for a repeated chunk too; keeps the payload only if the
  // chunk is new. An error ends the clone's stream:
  //   WRONG_RUN, EPOCH_CHANGED, NOT_READY, or the reason given to Close: see CheckSender
  //   BAD_CHUNK: the chunk has the wrong shard, number or length, or the replica does not exist
  //   STEP_TOO_NEW: sync only; the step is beyond version() + 1
  //   FENCED: a newer grant has been seen for the replica
  //   the verdict
  //   CHUNK_CONFLICT: the chunk was staged with other bytes, which stay
  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload,
                         const absl::Status& verdict);

  // Returns the orders to apply ahead that follow from the chunks since the last call. The store
  // carries these StoreApplyAhead actions out in order, without an answer.
  ShardActions TakeAhead() { return std::exchange(ahead_, {}); }

  // Returns why every push and pull of this sender is refused: the reason given to Close,
  // WRONG_RUN, EPOCH_CHANGED or NOT_READY.
  absl::Status CheckSender(const std::string& run_id, uint64_t epoch) const;
  // Returns OK if Handle will obey this Restore.
  //   WRONG_RUN: the shard belongs to another job
  //   EPOCH_CHANGED: the epoch is older than the shard's, or the shard has restarted since the
  //     coordinator asked for its state
  //   INVALID_ARGUMENT: the epoch is not plausible (epochs.h)
  absl::Status CheckRestore(const ps::RestoreRequest& request) const;

  // Returns the actions to carry out, in order. Never blocks.
  ShardActions Handle(const ShardEvent& event);

  // Returns the answer to GetShardState.
  ps::ShardStateReply State() const;

  // The epoch of the newest Restore, and the version that pulls get. 0 before the first restore.
  uint64_t epoch() const { return epoch_; }
  uint64_t version() const { return version_; }
  uint64_t duplicate_chunks() const { return duplicate_chunks_; }
  int64_t staged_bytes() const { return staging_.staged_bytes(); }

 private:
  // The store works on one of these at a time.
  enum class StoreTask { kNone, kRestoring, kMeasuring, kApplying };

  void On(const shard_event::FinishPush& event);
  void On(const shard_event::Pull& event);
  void On(const shard_event::Cancel& event);
  void On(const shard_event::Restore& event);
  void On(const shard_event::MeasureNorm& event);
  void On(const shard_event::Apply& event);
  void On(const shard_event::Snapshot& event);
  void On(const shard_event::StoreRestored& event);
  void On(const shard_event::StoreMeasured& event);
  void On(const shard_event::StoreApplied& event);
  void On(const shard_event::StoreSnapshotDone& event);
  void On(const shard_event::Close& event);

  // Checks run_id, epoch and readiness, in this order.
  absl::Status CheckIdentity(const std::string& run_id, uint64_t epoch) const;
  // Checks replica, step and grant, in this order.
  absl::Status CheckKey(const ps::PushKey& key) const;
  // Checks that the list of a pull names chunks of this shard, in ascending order.
  absl::Status CheckFloat32Chunks(const ps::PullRequest& request) const;
  // Returns whether the variables contain the contribution. Sync: also while its step is applied.
  // The key has passed CheckIdentity.
  bool AlreadyApplied(const ps::PushKey& key) const;
  void ServeWaitingPulls();
  void RefuseWaitingPulls(const absl::Status& status);

  // shard_aggregator_store.cc
  void BeginEpoch(uint64_t epoch);
  // Starts the restore or the apply that waits for the store, if the store is free.
  void StartWaitingWork();
  void StartApply();
  // Returns whether a snapshot still reads the store.
  bool IsSaving() const { return snapshot_.has_value() && !snapshot_->reply.has_value(); }
  // Returns whether a snapshot still reads the buffer that version `step` will overwrite.
  bool IsHeldBySnapshot(uint64_t step) const;
  // Called for each chunk that is staged. Orders chunk `chunk` of the next version to be made if it
  // has now arrived from every replica that will probably contribute.
  void ApplyAhead(const ps::PushKey& key, uint32_t chunk);
  // Returns what is staged of the contributions in the request. INTERNAL: one is not complete.
  absl::StatusOr<std::vector<StagedContribution>> Collect(const ps::ApplyRequest& request) const;
  void SetMarks(const std::string& marks);
  // Returns OK if the waiting restore can be carried out, else why not.
  absl::Status CheckRestorable() const;
  // Answers the callers of the finished restore.
  void AnswerRestore(const absl::Status& status);
  bool Holds(uint64_t version) const;

  const ShardOptions options_;
  ShardActions actions_;  // collected while an event is handled

  uint64_t epoch_ = 0;     // of the newest Restore
  bool restored_ = false;  // the newest Restore has been carried out
  uint64_t version_ = 0;
  std::vector<VersionId> held_versions_;  // whole versions in the store, newest last
  Staging staging_;
  // Async: serialised ps.PushMarks. next_positions_ holds the parsed content of marks_.
  std::string restored_marks_;  // of the restored version
  std::string marks_;           // of version_
  std::string previous_marks_;  // of version_ - 1
  std::map<uint32_t, uint64_t> next_positions_;
  absl::Status closed_;  // not OK: every clone is refused with it

  struct WaitingPull {
    CallId call = 0;
    uint64_t min_version = 0;
  };
  std::vector<WaitingPull> pulls_;

  StoreTask store_task_ = StoreTask::kNone;
  ExpectedContributions expected_;
  ShardActions ahead_;
  uint64_t measuring_step_ = 0;
  std::vector<CallId> norm_callers_;
  ps::ApplyRequest apply_;  // being applied, or waiting for the store
  std::vector<CallId> apply_callers_;
  bool apply_waits_ = false;
  ps::RestoreRequest restore_;  // the newest one; being carried out, or waiting for the store
  VersionId restoring_;         // what the store is restoring now
  std::vector<CallId> restore_callers_;
  bool restore_waits_ = false;

  struct Snapshot {
    ps::SnapshotRequest request;
    std::optional<absl::StatusOr<ps::SnapshotReply>> reply;  // answers repeated requests
    std::vector<CallId> callers;
  };
  std::optional<Snapshot> snapshot_;  // the newest one

  uint64_t duplicate_chunks_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_SHARD_AGGREGATOR_H_
