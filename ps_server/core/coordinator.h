// The one decider of a job, in shard 0's process, as a pure state machine: who owns which slot,
// which contributions a step is made of, when checkpoints are taken, what is restored after a
// crash. The protocol is described in README.md beside this file.
//
// No threads, sockets, files or clocks: the runtime feeds events with the steady time and carries
// out the actions in order. Time never goes back. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_COORDINATOR_H_
#define PUSHPULL_PS_SERVER_CORE_COORDINATOR_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_counters.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/core/coordinator_options.h"
#include "ps_server/core/epochs.h"
#include "ps_server/core/fan_out.h"
#include "ps_server/core/pending_calls.h"
#include "ps_server/core/protocol_rules.h"
#include "ps_server/core/slot_positions.h"
#include "ps_server/core/slot_table.h"
#include "ps_server/core/step_round.h"

namespace pushpull {

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options, ProtocolRules rules = {});

  // now: steady time.
  CoordinatorActions Handle(const CoordinatorEvent& event, absl::Duration now);
  // When a Tick is due; InfiniteDuration: never. Changes only by Handle.
  absl::Duration NextWakeup() const;

  // The persisted epoch, 0 before that.
  uint64_t epoch() const { return serving_epoch_; }
  // Applied on all shards.
  uint64_t version() const { return version_; }
  uint64_t durable_step() const { return durable_step_; }
  // 0 before the first worker has announced them.
  uint32_t num_slots() const { return slots_.num_slots(); }
  // EVICTED, with the operator's reason, or OK.
  absl::Status CheckNotEvicted(uint32_t worker_id) const;
  // The final checkpoint is published.
  bool training_done() const { return phase_ == Phase::kDone; }
  // Empty, or "clone 2 of 3 (never seen)": what keeps the step (or the start) waiting;
  // and for how long.
  std::string WaitingFor(absl::Duration now) const;
  double WaitingSeconds(absl::Duration now) const;
  ps::StatusReply Status(absl::Duration now) const;

 private:
  enum class Phase {
    kNew,
    kPersistingEpoch,
    kFindingCheckpoint,
    kQueryingShards,
    kRestoring,
    kTakingOver,  // restored for the first time in this process: train_dir is written
    kOpen,        // collects commits
    kMeasuring,   // decided; norms under way
    kApplying,    // decided; applies under way
    kFinishing,   // all steps applied (or draining): waits for the last checkpoint
    kDone,
    kDrained,
    kStopped,
  };

  void On(const coordinator_event::Start& event);
  void On(const coordinator_event::EpochPersisted& event);
  void On(const coordinator_event::CheckpointFound& event);
  void On(const coordinator_event::TookOver& event);
  void On(const coordinator_event::CheckpointPublished& event);
  void On(const coordinator_event::ShardReplied& event);
  void On(const coordinator_event::Register& event);
  void On(const coordinator_event::Heartbeat& event);
  void On(const coordinator_event::Commit& event);
  void On(const coordinator_event::Cancel& event);
  void On(const coordinator_event::Checkpoint& event);
  void On(const coordinator_event::Evict& event);
  void On(const coordinator_event::Drain& event);
  void On(const coordinator_event::Tick& event);

  // Everything that is due by time alone.
  void RunTimers();

  // coordinator_recovery.cc
  void BeginEpoch(const std::string& why);
  void PersistEpochIfDue();
  void OnShardStates();
  // When a run whose last step is in a verified checkpoint ends without its silent shards.
  absl::Duration FinishedRunLimit() const;
  void FinishWithoutShards();
  void OnAllRestored();
  void BeginServing();
  bool RestoreMarks();  // false: the shards do not agree, and are not gone on with
  // A call of the fan-out failed in a way that repeating it unchanged may not cure.
  void HandleShardFailure(FanOut* fan_out, uint32_t shard, const absl::Status& status);
  // False: the shard has restarted, and a new epoch has begun.
  bool CheckShardState(uint32_t shard, const ps::ShardStateReply& state);
  void Stop(const absl::Status& reason);

  // coordinator_operators.cc
  absl::Status CheckOperator() const;
  // Answers the calls that the newest checkpoint is new enough for.
  void AnswerCheckpoints();
  // Those that asked for this step or one before it.
  void RefuseCheckpoints(uint64_t up_to_step, const absl::Status& status);
  // When a drain that is not over is given up.
  absl::Duration DrainLimit() const;
  void GiveUpDraining();
  absl::Status EvictedError(uint32_t worker_id) const;
  void EvictNow(uint32_t worker, std::string reason, ps::EvictReply* reply);
  // Async: forgets the pushes of these slots that wait for their turn.
  void RefusePushes(absl::FunctionRef<bool(uint32_t slot)> of, const absl::Status& status);
  // The slot is the clone's own, or it has it now.
  bool IsSlotOf(uint32_t slot, uint32_t worker) const;

  // coordinator_requests.cc
  bool IsServing() const;
  // What a worker hears once stop_reason_ is set: STOPPED, or DRAINING where another server goes on
  // with the job, which it finds at the same address.
  absl::Status StoppedError() const;
  // Stopped, drained, not ready, wrong run or epoch, in this order.
  absl::Status CheckRequest(const std::string& run_id, uint64_t epoch) const;
  absl::StatusOr<ps::RegisterReply> HandleRegister(const ps::RegisterRequest& request);
  absl::Status CheckAnnouncement(const ps::RegisterRequest& request);
  absl::StatusOr<ps::HeartbeatReply> HandleHeartbeat(const ps::HeartbeatRequest& request);
  std::vector<ps::SlotGrant> GrantsOf(uint32_t worker_id) const;
  absl::Status CheckCommit(const ps::CommitRequest& request) const;
  void CommitSync(const coordinator_event::Commit& event);
  void CommitAsync(const coordinator_event::Commit& event);
  // A contribution to a step that has been decided.
  void NoteLate(const ps::PushKey& key);
  // True: training has been stopped.
  bool CountVoid(const ps::CommitRequest& request);
  void AnswerCommit(CallId call, ps::PushReply::Outcome outcome, ps::Level level,
                    uint64_t staleness = 0);

  // coordinator_steps.cc
  // What decided_ says is being measured or applied.
  bool IsDeciding() const { return phase_ == Phase::kMeasuring || phase_ == Phase::kApplying; }
  bool HasContribution(uint32_t slot) const;  // to the step being produced, or too late for one
  void OpenStep();
  void ReassignSlots();
  void DecideIfReady();
  bool IsReadyToDecide() const;
  // The step before went on without the slot, and nothing has been heard of it since.
  bool IsLagging(uint32_t slot) const;
  void CountMissing();
  void DecideSync();
  void DecideAsync();
  void StartApply();
  void OnNormsMeasured();
  void OnAllApplied();
  void AnswerPendingPushes(const absl::Status& status);
  void CountVoidStep();
  // No step is decided any more; ends when the last version is saved.
  void Finish(const absl::Status& answer_to_pending);
  void GoOn();
  bool AllStepsApplied() const;

  // coordinator_checkpoint.cc
  void StartCheckpointIfDue();
  void StartCheckpoint();
  absl::Duration NextCheckpoint() const;
  void OnSnapshotsWritten();
  void FailCheckpoint(const absl::Status& status);
  void AbandonCheckpoint();
  void FinishIfSaved();

  // coordinator_status.cc: slots that the open step has waited for long enough to say so.
  std::vector<uint32_t> LateSlots(absl::Duration now) const;

  void Tell(std::string text);
  void Warn(std::string text);
  std::string CloneName(uint32_t worker_id) const;

  const CoordinatorOptions options_;
  const ProtocolRules rules_;
  CoordinatorActions actions_;  // of the event being handled
  absl::Duration now_ = absl::ZeroDuration();

  Phase phase_ = Phase::kNew;
  absl::Duration phase_since_ = absl::ZeroDuration();
  uint64_t next_epoch_ = 0;  // highest ever given to PersistEpoch
  EpochPace epoch_pace_;
  absl::Duration persist_at_ = absl::InfiniteDuration();  // when next_epoch_ is to be persisted
  uint64_t serving_epoch_ = 0;                            // persisted
  uint64_t version_ = 0;
  uint64_t durable_step_ = 0;
  bool has_taken_over_ = false;  // train_dir is this process's
  uint64_t rolled_back_steps_ = 0;
  std::optional<VersionId> checkpoint_;  // newest that verifies
  ps::RestoreRequest restore_;
  std::vector<uint64_t> boot_ids_;  // per shard, as of this epoch

  uint32_t mapped_failures_ = 0;  // restores from mapped state that failed in a row
  uint32_t apply_failures_ = 0;   // applies that failed in a row

  SlotTable slots_;
  std::map<uint32_t, uint64_t> last_included_;  // by slot: newest step with its contribution
  std::map<uint32_t, uint64_t> lagging_;        // by slot: the grant that missed a step (drop)
  StepRound round_;                             // of step version_ + 1
  ps::ApplyRequest decided_;                    // frozen by Decide
  FanOut calls_;  // the protocol's next move: query, restore, norm or apply
  FanOut snapshots_;
  FanOut polls_;
  absl::Duration next_poll_ = absl::InfiniteDuration();

  // Async: committed pushes in the order of their commits; the front one is being applied.
  std::deque<PendingPush> pushes_;
  SlotPositions positions_;  // with what is being applied, and what was void

  enum class CheckpointPhase { kIdle, kSnapshots, kPublishing };
  CheckpointPhase checkpoint_phase_ = CheckpointPhase::kIdle;
  uint64_t checkpoint_step_ = 0;
  absl::Duration last_checkpoint_ = absl::ZeroDuration();
  absl::Duration checkpoint_retry_at_ = absl::ZeroDuration();
  uint32_t failures_in_a_row_ = 0;
  uint32_t final_failures_ = 0;  // of the checkpoint to end with
  std::vector<CheckpointCall> checkpoint_calls_;
  absl::Duration checkpoint_started_ = absl::ZeroDuration();

  bool draining_ = false;
  absl::Duration drain_since_ = absl::ZeroDuration();
  absl::Status stop_reason_;

  uint32_t void_steps_ = 0;  // in a row
  CoordinatorCounters counters_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COORDINATOR_H_
