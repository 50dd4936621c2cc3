// The small files of a train_dir beside the checkpoints: LOCK, run_id, EPOCH. One server per
// directory; only local file systems (flock and rename must mean what they say).
#ifndef PUSHPULL_COMMON_CHECKPOINT_TRAIN_DIR_H_
#define PUSHPULL_COMMON_CHECKPOINT_TRAIN_DIR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/file_system.h"

namespace pushpull {

// Not thread-safe. The file system must outlive it.
class TrainDir {
 public:
  // Creates the folder if need be and takes LOCK. UNAVAILABLE: another server holds the directory.
  static absl::StatusOr<std::unique_ptr<TrainDir>> Open(FileSystem* files, const std::string& path);

  const std::string& path() const { return path_; }

  // 32 hex digits, or nothing before the first WriteRunId. DATA_LOSS: the file holds something
  // else.
  absl::StatusOr<std::optional<std::string>> ReadRunId() const;
  absl::Status WriteRunId(const std::string& run_id);

  // Removes what a killed server left (.tmp-*, .trash-*); failures are logged. Only for a server
  // that has recovered, and before its first checkpoint.
  void Sweep();

  // max(EPOCH, at_least) + 1, on disk before it is returned. at_least: the newest epoch seen
  // elsewhere (manifest, mapped state). DATA_LOSS: as ReadEpoch.
  absl::StatusOr<uint64_t> AdvanceEpoch(uint64_t at_least);

 private:
  TrainDir(FileSystem* files, std::string path, std::unique_ptr<FileLock> lock);

  FileSystem* files_;
  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

// What EPOCH in the folder holds, 0 when there is none. DATA_LOSS: it is not a number; the message
// says how to repair it.
absl::StatusOr<uint64_t> ReadEpoch(FileSystem& files, const std::string& train_dir);

// 16 random bytes from the kernel, as 32 hex digits.
std::string NewRunId();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_TRAIN_DIR_H_
