// A file system in memory that knows what a disk would still hold after a power cut. Tests can make
// its k-th call fail or crash the machine. Thread-safe.
//
// Model: the bytes of a file are durable as of its last Sync, and the names in a folder as of its
// last SyncDirectory. A power cut (Reboot) keeps what is durable, and nothing, everything or a
// random part of the rest.
#ifndef PUSHPULL_TESTS_TESTKIT_MEMORY_FILE_SYSTEM_H_
#define PUSHPULL_TESTS_TESTKIT_MEMORY_FILE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"

#include "common/base/file_system.h"

namespace pushpull {

// The errors of the first three kinds may pass (common/base/passing_error.h).
struct FileFault {
  enum class Kind {
    kDiskFull,    // RESOURCE_EXHAUSTED; a write stores nothing
    kIoError,     // INTERNAL; a write stores nothing, a failed Sync makes nothing durable
    kShortWrite,  // RESOURCE_EXHAUSTED after half of the bytes; other calls fail as with kDiskFull
    kCrash,       // this call and all later ones fail until Reboot
  };
  Kind kind = Kind::kIoError;
  int64_t call = 0;      // the number of the call, counted from 0 since SetFault
  bool lasting = false;  // fails all calls from there on, not only that one
};

// Says which of the unsynced data survive a crash.
enum class Survival { kNothing, kEverything, kRandom };

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();

  void SetFault(std::optional<FileFault> fault);
  // Calls since SetFault (or construction). Only calls that change something or sync are counted.
  int64_t calls() const;
  bool crashed() const;
  // Restores the power: applies the loss, and forgets the fault and all locks. Files that were open
  // stay unusable.
  void Reboot(Survival survival, uint64_t seed);
  // Sets the result of FreeBytes, which writing does not change.
  void SetFreeBytes(int64_t bytes);
  // Calls `action` at the beginning of each Append from now on, which goes on when it returns.
  void BeforeAppend(std::function<void()> action);
  // Behaves like a file system without RENAME_EXCHANGE from now on.
  void RefuseExchange();
  // Overwrites a file's durable bytes without going through a WritableFile.
  void Corrupt(const std::string& path, const std::string& contents);

  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path,
                                                             WriteMode mode) override;
  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override;
  absl::Status MakeDirectory(const std::string& path) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  absl::StatusOr<FileInfo> GetInfo(const std::string& path) override;
  absl::StatusOr<std::string> FolderIdentity(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Exchange(const std::string& a, const std::string& b) override;
  absl::Status RemoveFile(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::StatusOr<int64_t> FreeBytes(const std::string& folder) override;
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override;

  struct Node;
  // State that open files share. They may outlive this object.
  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_MEMORY_FILE_SYSTEM_H_
