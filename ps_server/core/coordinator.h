// Decides for the whole job: which clone holds which replica, which contributions make up a step,
// when checkpoints are taken, and which version is restored after a crash. Runs in task 0.
// docs/PROTOCOL.md describes the protocol.
//
// Five parts decide, each with a state of its own: Membership, Scaling, Steps, Recovery and
// Checkpoints. The Coordinator hands each event to the part that it is for, does what the part asks
// (Followup), owns the phase of the job and the calls to shards, and answers the requests that
// concern several parts.
//
// How an event is handled: Handle -> RunTimers, then On(event) -> a part -> Followup -> Obey -> Do
// (followup), which may call further parts. A synchronous step, for example, from the commit that
// completes it until the next step opens (<- an event that comes in, -> actions that go out):
//
//   <- Commit        On(Commit): CheckCommit; Membership::Renew; Steps::Commit -> ReplyCommit
//                    DecideIfReady: Steps::DecideIfReady freezes the contributions and returns
//                    CallShards; Do(CallShards): calls_.Start (FanOut) -> CallShard for each shard
//   <- ShardReplied  On(ShardReplied): calls_.SetReply. When all shards have replied,
//                    Steps::OnReplies returns Applied; or, after MeasureNorm, CallShards once more
//                    Do(Applied): job.version rises; Scaling and Steps::NoteApplied -> StepApplied
//                    GoOn: Checkpoints::StartIfDue -> CallShard(Snapshot), if one is due;
//                    Steps::Open; Divide; Membership::ReturnHome; Reassign; DecideIfReady
//
// What is done with a Followup:
//
//   EpochPersisted         Recovery          the epoch holds from now on
//   CheckpointFound        Recovery          the number of images is known; asks all shards for
//                                            their states
//   CallShards             Recovery, Steps,  calls all shards, through snapshots_ for Checkpoints
//                          Checkpoints       and through calls_ for the others
//   Restored               Recovery          takes over train_dir, at the first time, then serves
//   Applied                Steps             opens the next step, or finishes the job
//   Published              Checkpoints       begins another checkpoint if one is due, or ends
//   FinalCheckpointFailed  Checkpoints       ends without it if the process drains, else stops
//   BeginEpoch             Recovery, Steps   gives up all calls and begins the next epoch
//   Stop                   Recovery, Steps,  stops training for good
//                          Checkpoints
//
// A pure state machine without threads, sockets, files or a clock: the runtime feeds events with
// the steady time, which never goes back, and carries out the actions in order. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_COORDINATOR_H_
#define PUSHPULL_PS_SERVER_CORE_COORDINATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/checkpoints.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/core/coordinator_job.h"
#include "ps_server/core/coordinator_options.h"
#include "ps_server/core/fan_out.h"
#include "ps_server/core/membership.h"
#include "ps_server/core/recovery.h"
#include "ps_server/core/scaling.h"
#include "ps_server/core/steps.h"

namespace pushpull {

class Coordinator {
 public:
  explicit Coordinator(CoordinatorOptions options);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Returns the actions to carry out, in order. `now` is the steady time. Never blocks.
  CoordinatorActions Handle(const CoordinatorEvent& event, absl::Duration now);
  // Returns when a Tick is due, InfiniteDuration for never. Changes only during Handle.
  absl::Duration NextWakeup() const;

  // Returns the newest persisted epoch, 0 before the first one is persisted.
  uint64_t epoch() const { return job_.epoch; }
  // Returns the newest version that every shard has applied.
  uint64_t version() const { return job_.version; }
  uint64_t durable_step() const { return checkpoints_.durable_step(); }
  // Returns the number of replicas, 0 until the options, the restored version or the first clone
  // have set it.
  uint32_t num_replicas() const { return members_.num_replicas(); }
  // Sync: returns the number of samples of each replica in the open step.
  const std::vector<int64_t>& shares() const { return members_.shares(); }
  // Returns EVICTED, with the administrator's reason, if an administrator has evicted the clone.
  absl::Status CheckNotEvicted(uint32_t worker_id) const {
    return members_.CheckNotEvicted(worker_id);
  }
  // Returns the last step of the run; 0 if there is none or none is known yet.
  uint64_t last_step() const { return job_.length.last_step(); }
  // Returns whether all steps are applied and the final checkpoint is published.
  bool training_done() const { return phase_ == Phase::kDone; }
  // Returns whether steps are made: no epoch is beginning, and neither the last step nor a drain
  // nor a failure ends the job.
  bool is_training() const { return phase_ == Phase::kTraining && !job_.draining; }
  // Returns what the step, the start or the end waits for, for example "clone 2 of 3 (never seen)",
  // and for how long. Empty and 0 while it has waited for less than 2 s, unless recovery waits for
  // an error to pass, which is named at once. A step that takes as long as usual does not wait (see
  // FindLate).
  std::string WaitingFor(absl::Duration now) const { return FindWait(now).what; }
  double WaitingSeconds(absl::Duration now) const;
  ps::StatusReply Status(absl::Duration now) const;

 private:
  enum class Phase {
    kRecovering,  // before the first event, and while an epoch begins
    kTraining,
    kFinishing,  // all steps are applied, or the job drains; waits for the final checkpoint
    kDone,
    kDrained,
    kStopped,
  };

  void On(const coordinator_event::Start& event);
  void On(const coordinator_event::EpochPersisted& event) {
    Obey(recovery_.OnEpochPersisted(event));
  }
  void On(const coordinator_event::CheckpointFound& event) {
    Obey(recovery_.OnCheckpointFound(event));
  }
  void On(const coordinator_event::TookOver& event);
  void On(const coordinator_event::ReplicasPersisted& event);
  void On(const coordinator_event::CheckpointPublished& event) {
    Obey(checkpoints_.OnPublished(event));
  }
  void On(const coordinator_event::ShardReplied& event);
  void On(const coordinator_event::Register& event);
  void On(const coordinator_event::Heartbeat& event);
  void On(const coordinator_event::Commit& event);
  void On(const coordinator_event::Cancel& event);
  void On(const coordinator_event::Checkpoint& event);
  void On(const coordinator_event::Evict& event);
  void On(const coordinator_event::Scale& event);
  void On(const coordinator_event::Drain& event);
  void On(const coordinator_event::Tick&) {}
  void OnShardFailure(FanOut* fan_out, uint32_t shard, const absl::Status& status);
  // Does everything that is due by time alone.
  void RunTimers();

  // Does what a part asks for.
  void Obey(const Followup& followup);
  void Do(const followup::None&) {}
  void Do(const followup::EpochPersisted& followup) { job_.epoch = followup.epoch; }
  void Do(const followup::CheckpointFound& followup);
  void Do(const followup::CallShards& followup);
  void Do(const followup::Restored& followup);
  void Do(const followup::Applied& followup);
  void Do(const followup::Published& followup);
  void Do(const followup::FinalCheckpointFailed& followup);
  void Do(const followup::BeginEpoch& followup) { BeginEpoch(followup.why); }
  void Do(const followup::Stop& followup);

  void BeginEpoch(const std::string& why);
  void BeginServing();
  // Finishes the job if no step follows, else opens the next one.
  void GoOn();
  // Takes over the number of training images, if the length of training depends on it and it is not
  // known yet. Finishes the job if no step follows.
  void TakeNumImages(uint64_t num_images);
  void DecideIfReady();
  void Reassign();
  // Divides the batch of the open step anew if that is due, and plans the next change.
  void Divide();
  // Returns whether the open step waits for a replica that no live clone holds. Such a step may
  // never end, so a new number of replicas holds for it already.
  bool WaitsForAbsent() const;
  // Returns the first step whose batch an administrator's call can divide anew: the open one if it
  // waits for an absent replica, else one after it.
  uint64_t NextDivisibleStep() const;
  // Refuses the administrators' calls that wait.
  void RefuseAdministrators(uint64_t up_to_step, const absl::Status& status);
  // Decides no more steps. The job ends once the last version is saved.
  void Finish(const absl::Status& answer_to_pushes);
  void FinishIfSaved();
  void FinishWithoutShards();
  void EndFinished();
  void AbandonCheckpoint();
  void Stop(const absl::Status& reason);
  // Gives up every call to shards but those of a checkpoint.
  void StopCalls();

  // coordinator_requests.cc
  bool IsServing() const;
  // Builds an error with the epoch and the version of now.
  absl::Status Error(ps::ErrorDetail::Kind kind, absl::string_view message) const;
  // Returns the error for clones once stop_reason_ is set: STOPPED, or DRAINING if another server
  // goes on with the job; the clone finds that server at the same address.
  absl::Status StoppedError() const;
  // Returns the first that applies of: StoppedError, WRONG_RUN, DRAINING, EPOCH_CHANGED, NOT_READY.
  absl::Status CheckRequest(const std::string& run_id, uint64_t epoch) const;
  absl::Status CheckCommit(const ps::CommitRequest& request) const;
  absl::Status CheckAdministrator() const;
  absl::StatusOr<ps::RegisterReply> HandleRegister(const ps::RegisterRequest& request);
  absl::StatusOr<ps::HeartbeatReply> HandleHeartbeat(const ps::HeartbeatRequest& request);
  absl::StatusOr<ps::EvictReply> HandleEvict(const ps::EvictRequest& request);
  std::vector<ps::ReplicaGrant> GrantsOf(uint32_t worker) const;
  void EndDrained();
  // Returns when to give up the drain under way, InfiniteDuration if there is none.
  absl::Duration DrainLimit() const;
  void GiveUpDraining();
  struct Wait {
    std::string what;  // empty: none is worth a report
    absl::Duration since = absl::ZeroDuration();
  };
  Wait FindWait(absl::Duration now) const;
  // Names the first shard that has not answered the call under way, and why.
  std::string DescribeMissing(const FanOut& fan_out) const;
  struct Late {
    std::vector<uint32_t> replicas;
    absl::Duration since = absl::InfiniteDuration();  // when the first of them became due
  };
  // Returns the missing replicas of the open step that are due since 2 s or more. A replica that no
  // live clone holds is due when the step opens. One of a live clone is due when another clone
  // commits, or when the step has been open for the usual time; in the latter case it is late only
  // when the step has taken twice that time.
  Late FindLate(absl::Duration now) const;

  const CoordinatorOptions options_;
  JobState job_;
  CoordinatorActions actions_;  // collected while an event is handled
  Membership members_;
  Scaling scaling_;
  Steps steps_;
  Recovery recovery_;
  Checkpoints checkpoints_;
  FanOut calls_;  // of Recovery while it recovers, else of Steps
  FanOut snapshots_;
  FanOut polls_;

  Phase phase_ = Phase::kRecovering;
  bool has_served_ = false;  // in any epoch of this process
  absl::Duration drain_since_ = absl::ZeroDuration();
  absl::Duration finish_since_ = absl::ZeroDuration();
  absl::Status stop_reason_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_COORDINATOR_H_
