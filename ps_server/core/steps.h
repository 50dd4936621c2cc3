// The part of the Coordinator that takes steps from open through decided and measured to applied:
// which commits count, when a step is decided, and with which contributions. In asynchronous mode
// every push is a step of its own. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_STEPS_H_
#define PUSHPULL_PS_SERVER_CORE_STEPS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/core/coordinator_job.h"
#include "ps_server/core/coordinator_options.h"
#include "ps_server/core/count_histogram.h"
#include "ps_server/core/membership.h"
#include "ps_server/core/push_queue.h"
#include "ps_server/core/replica_positions.h"
#include "ps_server/core/step_commits.h"
#include "ps_server/core/step_times.h"

namespace pushpull {

class Steps {
 public:
  // The arguments outlive this object. Actions are appended to `actions`. `members` says who holds
  // which replica, and counts contributions and drops of clones.
  Steps(const CoordinatorOptions& options, const JobState& job, Membership* members,
        CoordinatorActions* actions);

  // An epoch begins to serve job.version.
  void BeginEpoch();
  // Takes over the replicas' positions that are stored with the restored version (async). Returns
  // the number of these replicas, or 0 if no positions are stored.
  uint32_t RestorePositions(const std::string& marks, uint64_t version);
  // Opens the step after job.version.
  void Open();
  // Sync: forgets the commits of the open step, because the batch is divided anew for it.
  void Reopen() { commits_.Open(commits_.step()); }
  // Sync: forgets which replicas have missed a step, because there are other replicas now.
  void ForgetLagging() { lagging_.clear(); }
  // Decides nothing and counts no commit until the next Open.
  void Close() { phase_ = Phase::kClosed; }
  bool is_open() const { return phase_ == Phase::kOpen; }
  absl::Duration opened() const { return opened_; }
  // The step opened last.
  uint64_t step() const { return commits_.step(); }
  // Sync: its commits.
  const StepCommits& commits() const { return commits_; }

  // Returns whether the replica has contributed to the open step, or can do so no longer.
  bool HasContribution(uint32_t replica) const;
  // Returns the replicas that the open step waits for.
  std::vector<uint32_t> Missing() const;
  // Sync: how long a step is open usually; 0 until the second step of an epoch is decided.
  absl::Duration UsualTime() const { return times_.Usual(); }
  // Async: the next position of the replica, and the replica whose push is being applied.
  uint64_t NextPosition(uint32_t replica) const;
  std::optional<uint32_t> ReplicaBeingApplied() const;

  // Returns INVALID_ARGUMENT for a replica that does not exist or too many samples.
  absl::Status CheckCommit(const ps::CommitRequest& request) const;
  // Handles a commit that CheckCommit has let in. Answers it, unless it waits to be applied (async)
  // or Stop is returned with its call. The caller calls DecideIfReady afterwards.
  Followup Commit(CallId call, const ps::CommitRequest& request);
  void Cancel(CallId call) { pushes_.Cancel(call); }
  // Async: refuses the waiting pushes of the replicas that `of` names, except one being applied.
  void RefusePushes(absl::FunctionRef<bool(uint32_t replica)> of, const absl::Status& status);
  // Async: answers all waiting pushes: ALREADY_APPLIED if `status` is OK.
  void AnswerPushes(const absl::Status& status);

  // Returns whether a drain that began at `drain_since` gives up the open step. Sync: a step that
  // can be decided is kept. Any other is given up at once if it has no commit, else after
  // drain_patience. Async: always true.
  bool IsGivenUpBy(absl::Duration drain_since) const;
  // Decides the open step if it is complete. The shards measure or apply it next.
  Followup DecideIfReady();
  // Takes the replies of all shards to the call under way.
  Followup OnReplies(const std::vector<ShardReply>& replies);
  // A shard has failed to measure or apply.
  Followup OnCallFailed(const absl::Status& status);
  // Called after Applied, when job.version is the decided step. Answers its push (async).
  Followup NoteApplied();

  // Returns when the open step may be decided without the replicas that are missing.
  absl::Duration NextWakeup() const;
  void AddTo(ps::StatusReply* status) const;

 private:
  enum class Phase {
    kClosed,
    kOpen,       // collects commits
    kMeasuring,  // the step is decided; the shards measure norms
    kApplying,   // the step is decided; the shards apply it
  };

  bool IsDeciding() const { return phase_ == Phase::kMeasuring || phase_ == Phase::kApplying; }
  bool IsReady() const;
  // Returns whether so many replicas have contributed that the step can go on without the others
  // once the deadline has passed.
  bool HasEnough() const;
  // Returns whether a step went on without the replica and nothing came under its grant since.
  bool IsLagging(uint32_t replica) const;
  void CountMissing();
  // Async: refuses the front pushes that are too stale.
  void RefuseStale();
  absl::Status CheckBase(const ps::PushKey& key) const;
  void AddPush();
  Followup StartApply();
  Followup OnNorms(const std::vector<ShardReply>& replies);
  coordinator_action::StepApplied Report() const;
  Followup CountVoidStep();

  // steps_requests.cc
  Followup CommitSync(CallId call, const ps::CommitRequest& request);
  Followup CommitAsync(CallId call, const ps::CommitRequest& request);
  // Notes a commit that came after its step was decided. The replica no longer lags. Counts the
  // commit as a duplicate if the step included it.
  void NoteLate(const ps::PushKey& key);
  // Counts a void contribution. Returns why it stops training, or OK.
  absl::Status CountVoid(const ps::CommitRequest& request);
  absl::Status Error(ps::ErrorDetail::Kind kind, absl::string_view message) const;
  void Answer(CallId call, ps::PushReply::Outcome outcome, ps::Level level, uint64_t staleness = 0);
  void Refuse(const std::vector<CallId>& calls, const absl::Status& status);

  const CoordinatorOptions& options_;
  const JobState& job_;
  Membership* const members_;
  CoordinatorActions* const actions_;

  Phase phase_ = Phase::kClosed;
  absl::Duration opened_ = absl::ZeroDuration();
  StepTimes times_;           // how long the decided steps were open (sync)
  StepCommits commits_;       // the commits of the step opened last (sync)
  ps::ApplyRequest decided_;  // the frozen decision: what the shards are told to apply
  uint64_t restored_version_ = 0;
  std::map<uint32_t, uint64_t> last_included_;  // by replica: newest step with its contribution
  std::map<uint32_t, uint64_t> lagging_;        // by replica: the grant that missed a step
  uint32_t void_steps_ = 0;                     // consecutive steps without any contribution
  uint32_t apply_failures_ = 0;                 // failed applies in a row

  PushQueue pushes_;            // async
  ReplicaPositions positions_;  // async; includes the push being applied and void batches

  // For the status, since the server started.
  uint64_t dropped_contributions_ = 0;
  uint64_t duplicate_commits_ = 0;
  uint64_t void_contributions_ = 0;
  CountHistogram staleness_;     // async: of the applied pushes
  CountHistogram contributors_;  // sync: of the applied steps
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_STEPS_H_
