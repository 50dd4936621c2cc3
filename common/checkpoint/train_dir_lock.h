// Locks a train_dir for one ps task, so that no second process serves the task there. Relies on a
// file system with working flock, as local ones have.
//
// Thread rule: not thread-safe. All functions block on the disk, but none waits for the lock.
#ifndef PUSHPULL_COMMON_CHECKPOINT_TRAIN_DIR_LOCK_H_
#define PUSHPULL_COMMON_CHECKPOINT_TRAIN_DIR_LOCK_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"

namespace pushpull {

class TrainDirLock {
 public:
  // Creates the folder `path` if it does not exist, and locks the file LOCK in it, or LOCK.<task>
  // for a task other than 0. `files` must outlive the lock. UNAVAILABLE: another process holds the
  // lock.
  static absl::StatusOr<std::unique_ptr<TrainDirLock>> Take(FileSystem* files,
                                                            const std::string& path, int task);
  // Releases the lock. If the folder still has nothing but lock files, because a start has failed,
  // first removes what the starts of its tasks have created: this task's lock file, and the folders
  // that are empty then. The last task to leave removes the folders, whichever has created them.
  ~TrainDirLock();
  TrainDirLock(const TrainDirLock&) = delete;
  TrainDirLock& operator=(const TrainDirLock&) = delete;

 private:
  TrainDirLock(FileSystem* files, std::string path, int task);
  absl::Status Acquire();
  // Returns how many folders the other tasks of a start that has not used the folder yet say that
  // they have created.
  int CountMadeByOtherTasks() const;
  // Writes num_made_ into the lock file, for the other tasks.
  void NoteMade() const;
  // Removes the lock file if this object has created it and the folder has nothing but lock files.
  // Returns whether it has removed it.
  bool RemoveUnusedFile();

  FileSystem* const files_;
  const std::string path_;
  const int task_;
  const std::string file_;
  // How many of the folders at the end of the path this task or another one has created.
  int num_made_ = 0;
  bool file_is_new_ = false;
  std::unique_ptr<FileLock> lock_;  // null until it is taken
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_TRAIN_DIR_LOCK_H_
