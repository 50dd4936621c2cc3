// Checkpointer finds the checkpoint from which a job continues, publishes new checkpoints and
// removes old ones. The coordinator uses it.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_CHECKPOINTER_H_
#define PUSHPULL_PS_SERVER_RUNTIME_CHECKPOINTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "common/base/file_system.h"
#include "common/base/stop_requested.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/manifest.h"
#include "common/model/variable_entries.h"
#include "common/optimizer/state_vectors.h"
#include "ps_server/core/coordinator_events.h"
#include "ps_server/runtime/job_spec.h"
#include "ps_server/warm_start/corrected_statistics.h"

namespace pushpull {

// Returns what a shard reports to the coordinator about the file that it has written for a
// checkpoint. `marks` is left empty: the caller sets it to the serialized PushMarks of the version.
ps::SnapshotReply MakeSnapshotReply(const CheckpointFile& file);

// Size of the largest SnapshotReply, in bytes. It has the name and the checksum of each tensor: of
// each variable's weights, slots and moving average. A tensor's name is that of its variable, which
// counts in kMaxEntriesBytes, and a suffix; suffix, checksum and tags have at most 48 bytes.
// `marks` have less than 64 KiB.
inline constexpr int64_t kMaxTensorsPerVariable = 1 + kMaxSlots + 1;
inline constexpr int64_t kMaxSnapshotReplyBytes =
    kMaxTensorsPerVariable * (kMaxEntriesBytes + kMaxEntries * 48) + 64 * 1024;

// All methods but CheckMappedState and GoOnFrom block on the disk. One thread at a time calls
// FindCheckpoint, CheckMappedState, GoOnFrom, Publish, RemoveOld and Abandon; the others may run
// beside them.
class Checkpointer {
 public:
  // `job` and `files` must outlive the object. run_id: 32 hex digits. from_step:
  // FindCheckpoint returns the checkpoint of this step, even if there are newer ones, until
  // Publish has succeeded once; nullopt: it returns the newest checkpoint.
  Checkpointer(const JobSpec* job, FileSystem* files, std::string train_dir, std::string run_id,
               std::optional<uint64_t> from_step);

  // Returns the newest checkpoint that verifies, or nullopt if train_dir has no checkpoint.
  // Returns an error if there are checkpoints but none can be used, or if the checkpoint of
  // from_step cannot be used; see OpenCheckpoint for the codes. Keeps the checkpoint open. Another
  // call does not verify it again if it is still the one to return. CANCELLED: `stopped` has
  // returned true meanwhile. It is also asked while the shards restore from the open checkpoint.
  absl::StatusOr<std::optional<FoundCheckpoint>> FindCheckpoint(
      const StopRequested& stopped = NeverStopped);
  // Returns the checkpoint that FindCheckpoint keeps open if it is `id`, else null. So the shards
  // of the process restore from it without verifying all of its files once more each.
  std::shared_ptr<const Checkpoint> OpenedCheckpoint(const VersionId& id) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Lets go of the checkpoint that FindCheckpoint keeps open.
  void CloseCheckpoint() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the pipeline config, as text, of the checkpoint that FindCheckpoint has found last.
  // Empty: it has found none.
  const std::string& found_config() const { return found_config_; }
  // FAILED_PRECONDITION: mapped state holds `version`, which is newer than the checkpoint that
  // FindCheckpoint has found, and today's config would use or correct its moving statistics
  // wrongly. FindCheckpoint refuses a checkpoint for the same reasons. last_config: of the server
  // that made the version, as text; nothing is checked if it is empty.
  absl::Status CheckMappedState(uint64_t version, const std::string& last_config) const;
  // The job goes on from `version`. The steps between the newest checkpoint and this version count
  // as the server with last_config would have counted them. It is the last one that wrote the
  // config, and others before it may have made some of them with another number of local steps.
  void GoOnFrom(uint64_t version, const std::string& last_config);
  // Reads the checkpoint of `step` back. OK: it is complete, and it belongs to this run and model.
  absl::Status Verify(uint64_t step);
  // Writes the manifest that lists the shards' files, and publishes the checkpoint.
  // num_replicas: replicas of the job. ABORTED: another server has taken over train_dir.
  absl::Status Publish(const coordinator_action::PublishCheckpoint& order, uint64_t num_replicas);
  // Removes old checkpoints by the config's retention rule. If there are any, it reads the newest
  // checkpoint back first, which may take as long as writing it. Ends early, and leaves the rest to
  // a later call, once `stopped` has returned true. Logs a failure.
  void RemoveOld(const StopRequested& stopped = NeverStopped);
  // Removes the pending folder of a checkpoint that will not be published.
  void Abandon(uint64_t epoch, uint64_t step);

 private:
  // FAILED_PRECONDITION: the checkpoint belongs to another run or model, has moving statistics that
  // the config would use or correct wrongly, or lacks what the optimizer keeps for each variable.
  absl::Status CheckFits(const Checkpoint& checkpoint) const;
  // Returns the checkpoint that is kept open if it is the one for FindCheckpoint, else opens that.
  absl::StatusOr<std::shared_ptr<const Checkpoint>> OpenFound(const StopRequested& stopped) const;
  absl::Status CheckOptimizerState(const Checkpoint& checkpoint) const;
  // FAILED_PRECONDITION: the config would use or correct these moving statistics wrongly.
  absl::Status CheckStatistics(const TrainedStatistics& trained) const;
  // Returns how often the moving statistics have been updated up to the step. Steps after the
  // newest checkpoint count as local_steps updates each, by the config that has made them.
  uint64_t UpdatesAt(uint64_t step) const;

  struct Counted {
    uint64_t step = 0;
    uint64_t updates = 0;
  };
  // What the last server has made: the steps up to this one, with this many local steps each.
  struct LastServer {
    uint64_t step = 0;
    uint64_t local_steps = 1;
  };
  LastServer OfLastServer(uint64_t version, const std::string& last_config) const;

  const JobSpec* const job_;
  FileSystem* const files_;
  const std::string train_dir_;
  const std::string run_id_;
  std::optional<uint64_t> from_step_;
  Counted counted_;         // of the newest checkpoint
  LastServer last_server_;  // set by GoOnFrom
  std::string found_config_;
  std::optional<double> run_started_unix_;  // when the run's first checkpoint was saved
  mutable absl::Mutex mutex_;
  std::shared_ptr<const Checkpoint> opened_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_CHECKPOINTER_H_
