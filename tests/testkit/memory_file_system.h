// A file system in memory that remembers what a disk would still hold after a power cut, and that
// can make its k-th call fail or be the moment of the crash. Thread-safe.
//
// Model: a file's bytes are durable as of its last Sync, a folder's names as of its last
// SyncDirectory. Crash() replaces the state by what is durable, or by a random mixture of durable
// and not.
#ifndef PUSHPULL_TESTS_TESTKIT_MEMORY_FILE_SYSTEM_H_
#define PUSHPULL_TESTS_TESTKIT_MEMORY_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"

#include "common/base/file_system.h"

namespace pushpull {

struct FileFault {
  enum class Kind {
    kDiskFull,    // RESOURCE_EXHAUSTED; a write stores nothing
    kIoError,     // INTERNAL; a write stores nothing, a failed Sync makes nothing durable
    kShortWrite,  // RESOURCE_EXHAUSTED after half of the bytes; other calls as kDiskFull
    kCrash,       // this call and all later ones fail until Reboot
  };
  Kind kind = Kind::kIoError;
  int64_t call = 0;      // which call, counted from 0 since SetFault
  bool lasting = false;  // all calls from there on, not only that one
};

// What survives a crash of what was not synced.
enum class Survival { kNothing, kEverything, kRandom };

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();

  void SetFault(std::optional<FileFault> fault);
  // Calls since SetFault (or construction); only calls that change something or sync count.
  int64_t calls() const;
  bool crashed() const;
  // Power back: applies the loss, forgets fault and locks. Files that were open stay dead.
  void Reboot(Survival survival, uint64_t seed);
  // What FreeBytes says; writing does not change it.
  void SetFreeBytes(int64_t bytes);
  // As on a file system without RENAME_EXCHANGE.
  void RefuseExchange();
  // Overwrites a file's bytes behind everybody's back, synced.
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
  // What is shared with open files, which may outlive this object.
  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_MEMORY_FILE_SYSTEM_H_
