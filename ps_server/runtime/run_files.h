// RunFiles handles the files that hold a run's state, for one ps_server process. It carries out
// what RunState (ps_server/core/run_state.h) decides about state files and the server's files in
// train_dir.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_RUN_FILES_H_
#define PUSHPULL_PS_SERVER_RUNTIME_RUN_FILES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

#include "common/base/file_system.h"
#include "common/checkpoint/train_dir.h"
#include "common/trace/event_writer.h"
#include "ps_server/core/run_state.h"
#include "ps_server/store/state_folder.h"
#include "ps_server/store/variable_store.h"

namespace pushpull {

// One thread calls OpenTrainDir, GiveUpCheckpointsAfter, SetStateAsideWhenRestored, NoteEpoch and
// AddShard before any other method. The other methods are thread-safe. All methods that write or
// read files block on the disk.
class RunFiles {
 public:
  // num_shards: shards of this process. `files` must outlive the object.
  RunFiles(FileSystem* files, int num_shards) : files_(files), state_(num_shards) {}

  // Reads run_id, EPOCH, REPLICAS and pipeline.config. Changes no file. Called in the coordinator's
  // process only.
  // config_text: what JobRestored writes to pipeline.config. graph_def: the network, a serialized
  // GraphDef, which JobRestored writes to the event file; empty: unknown. DATA_LOSS: run_id, EPOCH
  // or REPLICAS is damaged.
  absl::Status OpenTrainDir(std::shared_ptr<TrainDir> train_dir, std::string config_text,
                            std::string graph_def);
  // The same, after it has created the folder `path` if it is absent, and locked it. UNAVAILABLE:
  // another server holds the lock.
  absl::Status OpenTrainDir(const std::string& path, std::string config_text,
                            std::string graph_def);
  // Lets JobRestored rename the checkpoints of steps after `step` to ckpt-<step>.given-up. The
  // user has gone back to `step`, and no later start may continue from them.
  void GiveUpCheckpointsAfter(uint64_t step) { last_step_ = step; }
  // Lets JobRestored set these state files aside, which are of another number of tasks.
  void SetStateAsideWhenRestored(std::vector<StateFileInfo> infos) {
    state_of_other_tasks_ = std::move(infos);
  }
  TrainDir* train_dir() const { return train_dir_.get(); }
  // 32 hex digits: the id in train_dir, or a new id, which the first PersistEpoch writes.
  const std::string& run_id() const { return run_id_; }
  uint64_t stored_epoch() const { return stored_epoch_; }
  // Raises stored_epoch() to the epoch of a published checkpoint. This corrects an EPOCH file
  // that was lost or holds a smaller number.
  void NoteEpoch(uint64_t epoch) { stored_epoch_ = std::max(stored_epoch_, epoch); }

  // The pipeline.config that OpenTrainDir has found, which the last server that recovered has
  // written. Empty: there is none, or it cannot be read.
  const std::string& last_config() const { return last_config_; }

  // The number of replicas that an administrator has set; nullopt: none has.
  std::optional<uint32_t> scaled_replicas() const { return scaled_replicas_; }

  // Called once per shard of this process, in their order. `store` must outlive the last call
  // of this object's methods.
  void AddShard(VariableStore* store);

  // Removes leftovers of earlier servers as far as it can, because they may fill the disk. Writes
  // run_id if train_dir has none, then EPOCH, and syncs both to disk. Then removes the checkpoints
  // that older epochs have not published; if this last step fails, EPOCH has been written.
  // ABORTED: EPOCH already holds this epoch or a later one, so another server has taken the folder
  // over; no file has changed.
  absl::Status PersistEpoch(uint64_t epoch);
  // Writes the number of replicas that an administrator has set, and syncs it to disk.
  // FAILED_PRECONDITION: another server has written EPOCH since the last PersistEpoch.
  absl::Status PersistReplicas(uint32_t num_replicas);
  // To be called when the store of `shard` (counted from 0 in this process) holds the version
  // that the coordinator chose. Returns the errors of VariableStore::AdoptFile; the next call for
  // this shard tries again.
  absl::Status ShardRestored(int shard);
  // Writes the server's files in train_dir. To be called when all shards of the job are
  // restored. After an error some of the work may be done; each file is still either the old
  // or the new one.
  absl::Status JobRestored();
  // Removes the state files if they are not needed any more, and closes the event file. To be
  // called at the end of the process, when nothing is applied any more. verified_step: step of
  // a checkpoint of this run that has just been read back and verified; nullopt: there is
  // none. Errors are logged.
  void End(std::optional<uint64_t> verified_step);

  // Returns whether ShardRestored has succeeded for every shard of this process.
  bool all_restored() const;
  // Owned by this object; null before JobRestored.
  EventWriter* events() const;

 private:
  absl::Status Carry(const std::vector<RunStateAction>& actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Logs that the state files stay, or that state in anonymous memory is lost. reason: why it is
  // needed.
  void LogKept(const std::string& reason) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Renames the checkpoints that GiveUpCheckpointsAfter names.
  absl::Status RenameGivenUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteTrainDir() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Logs it if an event file shows that a run has trained in train_dir, of which nothing is left.
  void WarnOfLostSteps() const;
  void RemoveStateFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FileSystem* const files_;
  // Set by OpenTrainDir and AddShard.
  std::shared_ptr<TrainDir> train_dir_;
  std::string config_text_;
  std::string last_config_;
  std::string graph_def_;
  std::string run_id_;
  bool run_id_is_new_ = false;
  uint64_t stored_epoch_ = 0;
  std::optional<uint32_t> scaled_replicas_;
  uint64_t persisted_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<uint64_t> last_step_;  // of GiveUpCheckpointsAfter
  std::vector<StateFileInfo> state_of_other_tasks_;
  std::vector<VariableStore*> stores_;

  mutable absl::Mutex mutex_;
  RunState state_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<EventWriter> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_RUN_FILES_H_
