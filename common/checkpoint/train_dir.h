// Manages the small files in a train_dir beside the checkpoints: LOCK, run_id, EPOCH and REPLICAS.
// LOCK admits one server per directory (train_dir_lock.h). Relies on a file system with atomic
// rename, as local ones have. All functions block on the disk.
#ifndef PUSHPULL_COMMON_CHECKPOINT_TRAIN_DIR_H_
#define PUSHPULL_COMMON_CHECKPOINT_TRAIN_DIR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"
#include "common/checkpoint/train_dir_lock.h"

namespace pushpull {

// The file with the secret that ps tasks without TLS share (common/wire/security/peer_secret.h).
inline constexpr char kPeerSecretFile[] = "peer_secret";

// A train_dir that this process has locked. The destructor releases the lock and removes a folder
// that has not been used (~TrainDirLock). Not thread-safe. The file system must outlive it.
class TrainDir {
 public:
  // Creates the folder if it does not exist and takes LOCK. UNAVAILABLE: another server holds it.
  static absl::StatusOr<std::unique_ptr<TrainDir>> Open(FileSystem* files, const std::string& path);

  const std::string& path() const { return path_; }

  absl::Status WriteRunId(const std::string& run_id);

  // Returns the number of replicas that an administrator has set, or nullopt if none has.
  // DATA_LOSS: the file is damaged; the message says how to repair it.
  absl::StatusOr<std::optional<uint32_t>> ReadReplicas() const;
  // Returns when the number is on the disk. After an error the file holds the old or the new one.
  absl::Status WriteReplicas(uint32_t num_replicas);

  // Removes what a killed server left: .tmp-ckpt-*, the temporary files of what servers write here,
  // and .trash-*. Temporary files of other programs stay, such as that of an exporter, which may
  // still be writing it. A checkpoint whose removal had begun is renamed back if an evaluator
  // protects it, its manifest is still there, and no other folder has its name. It stays as
  // .trash-* if it is unknown whether it is protected or has its manifest. Logs failures. Call it
  // after recovery and before this server's first checkpoint.
  void Sweep();

  // Removes the checkpoints that servers of epochs before `epoch` have written but not published. A
  // frozen server of an earlier epoch then cannot publish one any more. Call it after
  // WriteEpoch(epoch): before that, such a server may still write another one. MakeRoom also
  // removes them earlier, only to free space.
  absl::Status RemovePendingBefore(uint64_t epoch);

  // Does as much of RemovePendingBefore as it can, and removes .trash-* as Sweep does. Logs
  // failures. Call it before anything is written: on a disk that is full, these folders may be what
  // fills it.
  void MakeRoom(uint64_t epoch);

  // Writes EPOCH and returns when it is on the disk. After an error the file holds the old or the
  // new number.
  absl::Status WriteEpoch(uint64_t epoch);

 private:
  // Removes what is_leftover(name) is true for, except the checkpoints that PutBackOrKeep keeps.
  void RemoveLeftovers(absl::FunctionRef<bool(absl::string_view)> is_leftover);
  // Returns whether the folder `name` must not be removed, because it is a protected checkpoint or
  // may be one. Gives a protected checkpoint its name back if it can.
  // pinned: the steps of the checkpoints that an evaluator protects.
  bool PutBackOrKeep(const std::string& name,
                     const absl::StatusOr<std::vector<uint64_t>>& pinned) const;
  TrainDir(FileSystem* files, std::string path, std::unique_ptr<TrainDirLock> lock);

  FileSystem* files_;
  std::string path_;
  std::unique_ptr<TrainDirLock> lock_;
};

// Returns the folder's run id, 32 hex digits, or nullopt before the first WriteRunId. DATA_LOSS:
// the file holds something else; the message says how to repair it.
absl::StatusOr<std::optional<std::string>> ReadRunId(FileSystem& files,
                                                     const std::string& train_dir);

// Returns the number in the folder's EPOCH, or 0 if the file does not exist. DATA_LOSS: the file
// is damaged; the message says how to repair it.
absl::StatusOr<uint64_t> ReadEpoch(FileSystem& files, const std::string& train_dir);

// Returns 16 random bytes from the kernel as 32 hex digits.
std::string NewRunId();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_TRAIN_DIR_H_
