// One shard of the variables as a pure state machine: stages pushed chunks, applies what the
// coordinator has decided, answers pulls. The protocol is described in README.md beside this file.
//
// No threads, sockets, files or clocks: the runtime feeds events and carries out the actions in
// order. Not thread-safe; a lock around it is held for microseconds, as no call touches tensor
// bytes.
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

#include "common/payload.h"
#include "common/sharding.h"
#include "protos/parameter_server.pb.h"
#include "ps_server/core/expected_contributions.h"
#include "ps_server/core/protocol_rules.h"
#include "ps_server/core/shard_events.h"
#include "ps_server/core/staging.h"

namespace pushpull {

struct ShardOptions {
  std::string run_id;    // 16 bytes
  uint64_t boot_id = 0;  // random, per process start, not 0
  bool sync = true;
  uint32_t shard = 0;
  uint32_t tasks = 1;
  std::vector<int64_t> chunk_elements;  // of this shard: ChunkElements(sharding, shard)
  // What the mapped state of this run holds at the start, newest last.
  std::vector<VersionId> held_versions;
};

// Sizes of the shard's chunks, for ShardOptions.
std::vector<int64_t> ChunkElements(const Sharding& sharding, int shard);

// The answer to a push that carried its commit.
absl::StatusOr<ps::PushReply> PushReplyOf(const absl::StatusOr<ps::CommitReply>& commit);

class ShardAggregator {
 public:
  explicit ShardAggregator(ShardOptions options, ProtocolRules rules = {});

  // One chunk of a contribution. `verdict` is VerifyChunk's (chunk_verifier.h), computed outside
  // the lock. OK covers repetitions; the payload is kept only if the chunk is new. An error ends
  // the stream with it:
  //   WRONG_RUN, EPOCH_CHANGED, NOT_READY, STEP_TOO_NEW, FENCED, CHUNK_CONFLICT, BAD_CHUNK, or the
  //   verdict.
  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload,
                         const absl::Status& verdict);

  // What the store may do meanwhile because of the chunks that have come since the last call:
  // StoreApplyAhead orders, to be carried out in order.
  ShardActions TakeAhead() { return std::exchange(ahead_, {}); }

  // What is refused whatever else a push says: WRONG_RUN, EPOCH_CHANGED, NOT_READY, the reason of
  // Close.
  absl::Status CheckSender(const std::string& run_id, uint64_t epoch) const;
  // OK: Handle obeys this Restore. WRONG_RUN, EPOCH_CHANGED, or INVALID_ARGUMENT where the epoch is
  // not plausible.
  absl::Status CheckRestore(const ps::RestoreRequest& request) const;

  ShardActions Handle(const ShardEvent& event);

  // Answer to GetShardState.
  ps::ShardStateReply State() const;

  // 0 until restored.
  uint64_t epoch() const { return epoch_; }
  uint64_t version() const { return version_; }
  uint64_t duplicate_chunks() const { return duplicate_chunks_; }
  uint64_t conflicting_chunks() const { return conflicting_chunks_; }
  int64_t staged_bytes() const { return staging_.staged_bytes(); }

 private:
  // What the store is doing, one thing at a time.
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
  void On(const shard_event::StoreCaptured& event);
  void On(const shard_event::StoreSnapshotDone& event);
  void On(const shard_event::Close& event);

  // run_id, epoch and readiness, in this order.
  absl::Status CheckIdentity(const std::string& run_id, uint64_t epoch) const;
  // Slot, step and grant, in this order.
  absl::Status CheckKey(const ps::PushKey& key) const;
  // True: the key names a step (or push) that is in the variables already, or on its way there.
  bool AlreadyApplied(const ps::PushKey& key) const;
  void ServeWaitingPulls();
  void RefuseWaitingPulls(const absl::Status& status);

  // shard_aggregator_store.cc
  void BeginEpoch(uint64_t epoch);
  // Starts what waits for the store to be free: a restore, or an apply.
  void StartWaitingWork();
  void StartApply();
  // A snapshot still reads the store.
  bool IsCapturing() const { return capture_.has_value() && !capture_->captured; }
  // A snapshot still reads the buffer that version `step` takes.
  bool HeldForCapture(uint64_t step) const;
  // A chunk of a contribution to come has come: orders it to be made if it was the last one missing
  // of what the next version will probably be made of.
  void ApplyAhead(const ps::PushKey& key, uint32_t chunk);
  // What is staged of the contributions named. INTERNAL: some of it is not there.
  absl::StatusOr<std::vector<StagedContribution>> Collect(const ps::ApplyRequest& request) const;
  void SetMarks(const std::string& marks);
  // The restore that waits can be carried out: OK, or why it cannot.
  absl::Status CheckRestorable() const;
  // The answer to the restore that is over.
  void AnswerRestore(const absl::Status& status);
  bool Holds(uint64_t version) const;

  const ShardOptions options_;
  const ProtocolRules rules_;
  ShardActions actions_;  // of the event being handled

  uint64_t epoch_ = 0;     // of the newest Restore
  bool restored_ = false;  // that Restore is done
  uint64_t version_ = 0;
  std::vector<VersionId> held_versions_;  // whole versions in the store, newest last
  Staging staging_;
  // Async: ps.PushMarks, serialised; what they say of each slot is next_positions_.
  std::string restored_marks_;  // as of the version restored
  std::string marks_;           // as of version_
  std::string previous_marks_;  // as of version_ - 1
  std::map<uint32_t, uint64_t> next_positions_;
  absl::Status closed_;  // not OK: workers are turned away with it

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
  ps::ApplyRequest apply_;  // under way or waiting for the store
  std::vector<CallId> apply_callers_;
  bool apply_waits_ = false;
  ps::RestoreRequest restore_;  // newest; under way or waiting for the store
  VersionId restoring_;         // what the store is restoring
  std::vector<CallId> restore_callers_;
  bool restore_waits_ = false;

  struct Capture {
    ps::SnapshotRequest request;
    bool captured = false;  // the store's buffer is not needed any more
    std::optional<absl::StatusOr<ps::SnapshotReply>> reply;  // kept for repeated requests
    std::vector<CallId> callers;
  };
  std::optional<Capture> capture_;

  uint64_t duplicate_chunks_ = 0;
  uint64_t conflicting_chunks_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_SHARD_AGGREGATOR_H_
