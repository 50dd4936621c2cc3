// Decides for the whole job: which clone holds which replica, which contributions make up a step,
// when checkpoints are taken, and which version is restored after a crash. Runs in task 0.
// README.md beside this file describes the protocol.
//
// A pure state machine without threads, sockets, files or a clock: the runtime feeds events with
// the steady time, which never goes back, and carries out the actions in order. Not thread-safe.
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
#include "ps_server/core/replica_positions.h"
#include "ps_server/core/replica_table.h"
#include "ps_server/core/step_round.h"

namespace pushpull {

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options, ProtocolRules rules = {});

  // Returns the actions to carry out, in order. `now` is the steady time. Never blocks.
  CoordinatorActions Handle(const CoordinatorEvent& event, absl::Duration now);
  // Returns when a Tick is due, InfiniteDuration for never. Changes only during Handle.
  absl::Duration NextWakeup() const;

  // Returns the newest persisted epoch, 0 before the first one is persisted.
  uint64_t epoch() const { return serving_epoch_; }
  // Returns the newest version that every shard has applied.
  uint64_t version() const { return version_; }
  uint64_t durable_step() const { return durable_step_; }
  // Returns the number of replicas, 0 until the options or the first worker have set it.
  uint32_t num_replicas() const { return replicas_.num_replicas(); }
  // Returns EVICTED, with the operator's reason, if an operator has evicted the clone.
  absl::Status CheckNotEvicted(uint32_t worker_id) const;
  // Returns whether all steps are applied and the final checkpoint is published.
  bool training_done() const { return phase_ == Phase::kDone; }
  // Returns what the step (or the start) waits for, for example "clone 2 of 3 (never seen)", and
  // for how long. Empty and 0 while it has waited for less than 2 s.
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
    kTakingOver,  // the first restore of this process is done; train_dir is being written
    kOpen,        // collects commits
    kMeasuring,   // the step is decided; the shards measure norms
    kApplying,    // the step is decided; the shards apply it
    kFinishing,   // all steps are applied, or the job drains; waits for the last checkpoint
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

  // Does everything that is due by time alone.
  void RunTimers();

  // coordinator_recovery.cc
  void BeginEpoch(const std::string& why);
  void PersistEpochIfDue();
  void OnShardStates();
  // Returns when a run whose last step is checkpointed gives up waiting for silent shards and ends.
  absl::Duration FinishedRunLimit() const;
  void FinishWithoutShards();
  void OnAllRestored();
  void BeginServing();
  bool RestoreMarks();  // false: the shards' marks differ, and recovery starts over or stops
  // Handles a failed call: repeats it, fails the checkpoint, begins a new epoch, or stops the job.
  void HandleShardFailure(FanOut* fan_out, uint32_t shard, const absl::Status& status);
  // Returns false if the shard has restarted; a new epoch has begun then.
  bool CheckShardState(uint32_t shard, const ps::ShardStateReply& state);
  void Stop(const absl::Status& reason);

  // coordinator_operators.cc
  absl::Status CheckOperator() const;
  // Answers the Checkpoint calls that the newest published checkpoint satisfies.
  void AnswerCheckpoints();
  // Refuses the Checkpoint calls that asked for `up_to_step` or an earlier step.
  void RefuseCheckpoints(uint64_t up_to_step, const absl::Status& status);
  // Returns when to give up the drain under way, InfiniteDuration if there is none.
  absl::Duration DrainLimit() const;
  void GiveUpDraining();
  absl::Status EvictedError(uint32_t worker_id) const;
  void EvictNow(uint32_t worker, std::string reason, ps::EvictReply* reply);
  // Async: refuses the waiting pushes of the replicas that `of` names, except one being applied.
  void RefusePushes(absl::FunctionRef<bool(uint32_t replica)> of, const absl::Status& status);
  // Returns whether the replica's home is this clone, or this clone holds its grant now.
  bool IsReplicaOf(uint32_t replica, uint32_t worker) const;

  // coordinator_requests.cc
  bool IsServing() const;
  // Returns the error for workers once stop_reason_ is set: STOPPED, or DRAINING if another server
  // has taken the job over; the worker finds that server at the same address.
  absl::Status StoppedError() const;
  // Returns the first that applies of: StoppedError, WRONG_RUN, DRAINING, EPOCH_CHANGED, NOT_READY.
  absl::Status CheckRequest(const std::string& run_id, uint64_t epoch) const;
  absl::StatusOr<ps::RegisterReply> HandleRegister(const ps::RegisterRequest& request);
  absl::Status CheckAnnouncement(const ps::RegisterRequest& request);
  absl::StatusOr<ps::HeartbeatReply> HandleHeartbeat(const ps::HeartbeatRequest& request);
  std::vector<ps::ReplicaGrant> GrantsOf(uint32_t worker_id) const;
  absl::Status CheckCommit(const ps::CommitRequest& request) const;
  void CommitSync(const coordinator_event::Commit& event);
  void CommitAsync(const coordinator_event::Commit& event);
  // Notes a commit that came after its step was decided. The replica no longer lags. Counts the
  // commit as a duplicate if the step included it.
  void NoteLate(const ps::PushKey& key);
  // Returns true if the void contribution stops training.
  bool CountVoid(const ps::CommitRequest& request);
  void AnswerCommit(CallId call, ps::PushReply::Outcome outcome, ps::Level level,
                    uint64_t staleness = 0);

  // coordinator_steps.cc
  // Returns whether the step in decided_ is being measured or applied.
  bool IsDeciding() const { return phase_ == Phase::kMeasuring || phase_ == Phase::kApplying; }
  // Returns whether the replica has contributed to the open step, or can do so no longer.
  bool HasContribution(uint32_t replica) const;
  void OpenStep();
  void ReassignReplicas();
  void DecideIfReady();
  bool IsReadyToDecide() const;
  // Returns whether a step went on without the replica and nothing came under its grant since.
  bool IsLagging(uint32_t replica) const;
  void CountMissing();
  void DecideSync();
  void DecideAsync();
  void StartApply();
  void OnNormsMeasured();
  void OnAllApplied();
  void AnswerPendingPushes(const absl::Status& status);
  void CountVoidStep();
  // Decides no more steps. The job ends once the last version is saved.
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

  // coordinator_status.cc: the replicas that the open step has waited for long enough to report.
  std::vector<uint32_t> LateReplicas(absl::Duration now) const;

  void Tell(std::string text);
  void Warn(std::string text);
  std::string CloneName(uint32_t worker_id) const;

  const CoordinatorOptions options_;
  const ProtocolRules rules_;
  CoordinatorActions actions_;  // collected while an event is handled
  absl::Duration now_ = absl::ZeroDuration();

  Phase phase_ = Phase::kNew;
  absl::Duration phase_since_ = absl::ZeroDuration();
  uint64_t next_epoch_ = 0;  // highest epoch ever given to PersistEpoch
  EpochPace epoch_pace_;
  absl::Duration persist_at_ = absl::InfiniteDuration();  // when to persist next_epoch_
  uint64_t serving_epoch_ = 0;                            // newest persisted epoch
  uint64_t version_ = 0;
  uint64_t durable_step_ = 0;
  bool has_taken_over_ = false;  // this process has written train_dir
  uint64_t rolled_back_steps_ = 0;
  std::optional<VersionId> checkpoint_;  // newest one that verifies
  ps::RestoreRequest restore_;
  std::vector<uint64_t> boot_ids_;  // per shard, as of this epoch

  uint32_t mapped_failures_ = 0;  // failed restores from mapped state in a row
  uint32_t apply_failures_ = 0;   // failed applies in a row

  ReplicaTable replicas_;
  std::map<uint32_t, uint64_t> last_included_;  // by replica: newest step with its contribution
  std::map<uint32_t, uint64_t> lagging_;        // by replica: the grant that missed a step (drop)
  StepRound round_;                             // the commits of step version_ + 1
  ps::ApplyRequest decided_;  // the frozen decision: what the shards are told to apply
  FanOut calls_;              // the current phase's calls: GetState, Restore, MeasureNorm or Apply
  FanOut snapshots_;
  FanOut polls_;
  absl::Duration next_poll_ = absl::InfiniteDuration();

  // Async: committed pushes in commit order. While a step is decided, the front one is being
  // applied.
  std::deque<PendingPush> pushes_;
  ReplicaPositions positions_;  // includes the push being applied and void batches

  enum class CheckpointPhase { kIdle, kSnapshots, kPublishing };
  CheckpointPhase checkpoint_phase_ = CheckpointPhase::kIdle;
  uint64_t checkpoint_step_ = 0;
  absl::Duration last_checkpoint_ = absl::ZeroDuration();
  absl::Duration checkpoint_retry_at_ = absl::ZeroDuration();
  uint32_t failures_in_a_row_ = 0;
  uint32_t final_failures_ = 0;  // failures of the checkpoint that ends the job
  std::vector<CheckpointCall> checkpoint_calls_;
  absl::Duration checkpoint_started_ = absl::ZeroDuration();

  bool draining_ = false;
  absl::Duration drain_since_ = absl::ZeroDuration();
  absl::Status stop_reason_;

  uint32_t void_steps_ = 0;  // consecutive steps without any contribution
  CoordinatorCounters counters_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COORDINATOR_H_
