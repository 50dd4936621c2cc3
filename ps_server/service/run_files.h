// The files that hold a run's state, as one ps_server process sees them: carries out what RunState
// (ps_server/core/run_state.h) decides about state files and about the server's files in train_dir.
#ifndef PUSHPULL_PS_SERVER_SERVICE_RUN_FILES_H_
#define PUSHPULL_PS_SERVER_SERVICE_RUN_FILES_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

#include "common/checkpoint/train_dir.h"
#include "common/event_writer.h"
#include "common/file_system.h"
#include "ps_server/core/run_state.h"
#include "ps_server/store/variable_store.h"

namespace pushpull {

// OpenTrainDir and AddShard before anything else and from one thread; the rest is thread-safe. All
// calls block on the disk.
class RunFiles {
 public:
  // num_shards: of this process. `files` must outlive it.
  RunFiles(FileSystem* files, int num_shards) : files_(files), state_(num_shards) {}

  // Coordinator's process only. Locks the folder and finds out the run's identity; of what is on
  // disk nothing changes. Errors of TrainDir; DATA_LOSS: run_id or EPOCH is damaged. config_text:
  // what pipeline.config gets when the job serves.
  absl::Status OpenTrainDir(const std::string& path, std::string config_text);
  // When the job serves, checkpoints of later steps than this one are renamed to
  // ckpt-<step>.given-up: the user has gone back, and nothing may go on from them.
  void GiveUpCheckpointsAfter(uint64_t step) { last_step_ = step; }
  TrainDir* train_dir() const { return train_dir_.get(); }
  // 32 hex digits: the folder's, or a new one that PersistEpoch writes.
  const std::string& run_id() const { return run_id_; }
  uint64_t stored_epoch() const { return stored_epoch_; }
  // A checkpoint was published in this epoch: a damaged EPOCH file that says less is not believed.
  void NoteEpoch(uint64_t epoch) { stored_epoch_ = std::max(stored_epoch_, epoch); }

  // In the order of the shards. The store must outlive the last call of this object.
  void AddShard(VariableStore* store);

  // Writes run_id where there is none, then EPOCH, durably. FAILED_PRECONDITION: EPOCH holds this
  // epoch or a later one, so another server has written it.
  absl::Status PersistEpoch(uint64_t epoch);
  // The shard's store holds the version that the coordinator chose. Errors of
  // VariableStore::AdoptFile.
  absl::Status ShardRestored(int shard);
  // All shards of the job are restored: writes the server's files in train_dir. An error leaves the
  // files that were there.
  absl::Status JobRestored();
  // The process ends and nothing is applied any more. verified_step: of a checkpoint of this run
  // that has just been read back and verified.
  void End(std::optional<uint64_t> verified_step);

  bool all_restored() const;
  // Null before JobRestored.
  EventWriter* events() const;

 private:
  absl::Status Carry(const std::vector<RunStateAction>& actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RenameGivenUp() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status WriteTrainDir() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveStateFiles() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FileSystem* const files_;
  // Set by OpenTrainDir and AddShard.
  std::unique_ptr<TrainDir> train_dir_;
  std::string config_text_;
  std::string run_id_;
  bool run_id_is_new_ = false;
  uint64_t stored_epoch_ = 0;
  std::optional<uint64_t> last_step_;
  std::vector<VariableStore*> stores_;

  mutable absl::Mutex mutex_;
  RunState state_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<EventWriter> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_RUN_FILES_H_
