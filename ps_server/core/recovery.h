// The part of the Coordinator that begins epochs: persists the number, finds the version that the
// job goes on from (restore_point.h), has every shard restore it, and notices while the job serves
// that a shard has restarted. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_RECOVERY_H_
#define PUSHPULL_PS_SERVER_CORE_RECOVERY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/core/coordinator_job.h"
#include "ps_server/core/coordinator_options.h"
#include "ps_server/core/epochs.h"

namespace pushpull {

class Recovery {
 public:
  // What a shard's error means for the call that it answers.
  enum class Failure {
    kRepeat,     // the call may succeed if it is repeated
    kLostEpoch,  // while the job serves: the shard does not know the epoch, so a new one begins
    kFinal,
  };

  // The arguments outlive this object. Actions are appended to `actions`.
  Recovery(const CoordinatorOptions& options, const JobState& job, CoordinatorActions* actions);

  // Returns the number of the newest epoch that this process has begun. PersistEpoch has been
  // ordered for it, or is ordered next.
  uint64_t next_epoch() const { return next_epoch_; }
  // Returns whether an epoch has begun that does not serve yet.
  bool is_recovering() const { return phase_ != Phase::kIdle && phase_ != Phase::kServing; }

  // `stored_epoch` is the content of the EPOCH file.
  void Start(uint64_t stored_epoch) { next_epoch_ = stored_epoch; }
  // Begins the next epoch, after a pause if epochs follow each other fast. FAILED_PRECONDITION:
  // there is no higher number.
  absl::Status BeginEpoch(const std::string& why);
  // Orders PersistEpoch if the pause is over.
  void PersistIfDue();
  Followup OnEpochPersisted(const coordinator_event::EpochPersisted& event);
  Followup OnCheckpointFound(const coordinator_event::CheckpointFound& event);
  // Takes the replies of all shards to the call under way.
  Followup OnReplies(const std::vector<ShardReply>& replies);
  // A shard has refused the call under way for good, with `detail`. `status` names the shard.
  Followup OnCallFailed(const ps::ErrorDetail& detail, const absl::Status& status);
  // Called after Restored. Returns whether the job serves next; else TakeOver is ordered.
  bool TakeOverOrServe();
  // train_dir is written. Returns whether the job serves next.
  bool OnTookOver();
  // The job serves job.version. `newest_checkpoint` is for the log: Checkpoints::DescribeNewest.
  void BeginServing(absl::string_view newest_checkpoint);
  // Gives up what is under way. Nothing happens until the next BeginEpoch.
  void Close();

  // Returns what an error of a shard means. If the shard names an epoch that is not plausible
  // (epochs.h), warns. If the result is kLostEpoch, the next epoch will be above that of the shard.
  Failure JudgeFailure(uint32_t shard, const absl::Status& status);
  // Returns when a run whose last checkpoint is published gives up waiting for silent shards and
  // ends.
  absl::Duration FinishedRunLimit() const;
  // Returns whether the shards' states are to be polled now, and plans the next poll.
  bool TakePoll();
  // Returns BeginEpoch if the shard has restarted, else None.
  Followup CheckPolledState(uint32_t shard, const ps::ShardStateReply& state) const;
  absl::Duration NextWakeup() const;
  // Returns the passing error that recovery waits out: EPOCH could not be written, or the
  // checkpoint could not be read. Empty: none.
  const std::string& obstacle() const { return obstacle_; }
  // Returns when the obstacle was met first. Valid if there is one.
  absl::Duration obstacle_since() const { return obstacle_since_; }
  // Returns when the epoch that does not serve yet has begun. Valid if is_recovering.
  absl::Duration begun() const { return begun_; }
  // Returns what recovery waits for, as "the shards to restore step 300 from the checkpoint". `who`
  // names the shards that have not answered the call under way. Valid if is_recovering.
  std::string DescribeWait(absl::string_view who) const;
  uint64_t rolled_back_steps() const { return rolled_back_steps_; }
  // Returns the version that the shards have restored, or are restoring.
  uint64_t restored_version() const { return restore_.step(); }
  // Returns whether the shards are restoring the checkpoint or the initial variables. Then they
  // hold no newer version that the job could go on with.
  bool restores_from_disk() const {
    return phase_ == Phase::kRestoring && restore_.source() != ps::RestoreRequest::MAPPED;
  }

 private:
  enum class Phase {
    kIdle,
    kPersistingEpoch,
    kFindingCheckpoint,
    kQueryingShards,
    kRestoring,
    kTakingOver,  // the first restore of this process is done; train_dir is being written
    kServing,
  };

  Followup OnShardStates(const std::vector<ShardReply>& replies);
  Followup OnRestored(const std::vector<ShardReply>& replies);
  Followup RetryWithoutMemory(const absl::Status& status);
  // An epoch could not begin. Begins another one, under a new number because the file may hold this
  // one already, if the error may pass and disk_patience is not over; else stops the job.
  Followup RepeatIfPassing(const absl::Status& status);

  const CoordinatorOptions& options_;
  const JobState& job_;
  CoordinatorActions* const actions_;

  Phase phase_ = Phase::kIdle;
  absl::Duration begun_ = absl::ZeroDuration();  // when the epoch began
  uint64_t next_epoch_ = 0;
  EpochPace epoch_pace_;
  absl::Duration persist_at_ = absl::InfiniteDuration();
  absl::Duration next_poll_ = absl::InfiniteDuration();
  bool has_taken_over_ = false;                // this process has written train_dir
  std::optional<FoundCheckpoint> checkpoint_;  // as found in this epoch
  ps::RestoreRequest restore_;
  uint64_t rolled_back_steps_ = 0;
  std::string obstacle_;
  absl::Duration obstacle_since_ = absl::ZeroDuration();
  uint32_t mapped_failures_ = 0;  // failed restores from mapped state in a row
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_RECOVERY_H_
