// The part of the Coordinator that takes checkpoints. It decides when one begins (by time, by
// steps, by an administrator's call or at the end of the job) and what follows a failure, and it
// answers administrators' calls. Not thread-safe.
//
// The newest checkpoint is the one published last. The final checkpoint is that of the version with
// which this process ends: no step follows, or the process drains. Only in the first case does its
// manifest say that training is done.
#ifndef PUSHPULL_PS_SERVER_CORE_CHECKPOINTS_H_
#define PUSHPULL_PS_SERVER_CORE_CHECKPOINTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/core/coordinator_job.h"
#include "ps_server/core/coordinator_options.h"

namespace pushpull {

class Checkpoints {
 public:
  // The arguments outlive this object. Actions are appended to `actions`.
  Checkpoints(const CoordinatorOptions& options, const JobState& job, CoordinatorActions* actions);

  // Returns the step of the newest published checkpoint, 0 for none. An external model has a
  // checkpoint of step 0 with its declared variables.
  uint64_t durable_step() const { return newest_step_.value_or(0); }
  // Returns "the newest checkpoint is of step 40" or "no checkpoint has been published".
  std::string DescribeNewest() const;
  // Recovery has found the newest checkpoint, or none. Called before each BeginEpoch.
  void SetNewest(const std::optional<FoundCheckpoint>& checkpoint);
  // An epoch begins to serve job.version. The time until the next checkpoint begins anew only if
  // that version is saved, so that epochs and processes that end early do not put it off for ever.
  void BeginEpoch();
  // The next checkpoint of job.version is the final one. It starts without a pause, and the pauses
  // after its failures start from 1 s again. May be called a second time, when a drain begins
  // meanwhile.
  void BeginFinal();

  // Begins a checkpoint of job.version if one is due. Called while no step is measured or applied.
  Followup StartIfDue();
  // Begins the final checkpoint unless one is under way, the version is saved, or a pause is on.
  Followup StartFinalIfDue();
  // Returns whether job.version is saved and nothing is under way. If training ends with this
  // version, its checkpoint also says so.
  bool IsSaved() const { return phase_ == Phase::kIdle && HasCheckpoint(); }
  // Takes the replies of all shards to Snapshot, and orders the publication. The manifest names the
  // devices.
  void OnReplies(std::vector<ShardReply> replies, std::vector<std::string> devices);
  // A shard could not save its version. `gone`: it no longer holds the version, because it has
  // begun the second step after it.
  Followup OnCallFailed(const absl::Status& status, bool gone);
  Followup OnPublished(const coordinator_event::CheckpointPublished& event);
  // Gives up the checkpoint under way, if there is one.
  void Abandon();

  // An administrator wants a checkpoint of at least job.version.
  void Ask(CallId call);
  void Cancel(CallId call);
  // Refuses the administrators' calls that asked for `up_to_step` or an earlier step.
  void Refuse(uint64_t up_to_step, const absl::Status& status);

  // Returns when StartIfDue or StartFinalIfDue would begin a checkpoint by time alone. Valid while
  // no step is measured or applied, and after BeginFinal.
  absl::Duration NextWakeup() const;
  void AddTo(ps::StatusReply* status, absl::Duration now) const;

 private:
  enum class Phase { kIdle, kSnapshots, kPublishing };
  // A Checkpoint call of an administrator.
  struct Call {
    CallId call = 0;
    uint64_t version = 0;  // applied when the call came
  };

  // Returns whether job.version needs no other checkpoint. A checkpoint that was published before
  // it was known that training ends with its step has to be published again.
  bool HasCheckpoint() const {
    return job_.version == durable_step() &&
           (durable_says_done_ || !job_.length.EndsAt(durable_step()));
  }
  Followup Start();
  Followup Fail(const absl::Status& status);
  // Answers the calls that the newest published checkpoint satisfies.
  void AnswerCalls();

  const CoordinatorOptions& options_;
  const JobState& job_;
  CoordinatorActions* const actions_;

  Phase phase_ = Phase::kIdle;
  std::optional<uint64_t> newest_step_;  // of the newest published checkpoint
  bool durable_says_done_ = false;  // the newest published checkpoint says that training is done
  uint64_t attempts_ = 0;           // checkpoints that were begun
  uint64_t step_ = 0;               // of the checkpoint under way
  bool says_done_ = false;          // the same checkpoint says that training is done
  bool is_final_ = false;           // the checkpoint of job.version ends the job
  absl::Duration started_ = absl::ZeroDuration();
  // Since when there may be steps that the newest checkpoint lacks. May lie before the process
  // began, but by no more than save_checkpoints_every, after which a checkpoint is due.
  absl::Duration unsaved_since_ = absl::ZeroDuration();
  absl::Duration retry_at_ = absl::ZeroDuration();
  uint32_t failures_in_a_row_ = 0;
  // Checkpoints that were given up because the shards had dropped the version. They are no
  // failures.
  uint32_t overtaken_in_a_row_ = 0;
  // Failures of the final checkpoint. Those that may pass count only while the process drains.
  uint32_t final_failures_ = 0;
  std::optional<absl::Duration> final_failed_since_;  // when the final checkpoint first failed
  std::vector<Call> calls_;

  // For the status, since the server started.
  uint64_t published_ = 0;
  uint64_t failures_ = 0;
  std::optional<absl::Duration> published_at_;
  absl::Duration took_ = absl::ZeroDuration();
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_CHECKPOINTS_H_
