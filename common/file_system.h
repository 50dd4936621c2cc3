// The few file operations the project needs, replaceable so that tests can make the k-th call fail
// or lose everything that was not synced (tests/testutil/memory_file_system.h).
//
// Errors name the path and the reason: NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED,
// RESOURCE_EXHAUSTED (disk full), UNAVAILABLE (lock held by another process), INTERNAL (I/O error).
// A FileSystem and a ReadableFile are thread-safe; a WritableFile belongs to one thread at a time.
// Files stay usable after their name is removed.
#ifndef PUSHPULL_COMMON_FILE_SYSTEM_H_
#define PUSHPULL_COMMON_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/payload.h"

namespace pushpull {

// Unbuffered: every Append is one write. The destructor closes without reporting errors.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual absl::Status Append(absl::string_view data) = 0;
  // Blocks until the contents are on the disk. After a failed Sync the file is lost: the kernel may
  // have dropped the pages, so nobody may sync it again and believe the answer.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual int64_t size_bytes() const = 0;  // when it was opened
  // Exactly size bytes from the offset; OUT_OF_RANGE when the file ends before.
  virtual absl::Status ReadAt(int64_t offset, void* destination, int64_t size) const = 0;
  // The whole file, mapped. Only for files that nobody shortens: a lost page is a SIGBUS, not an
  // error.
  virtual absl::StatusOr<Payload> Map() const = 0;
};

struct FileInfo {
  bool is_directory = false;
  int64_t size_bytes = 0;
};

// Held while it lives.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  enum class WriteMode {
    kCreateNew,
    kTruncate
  };  // kCreateNew: ALREADY_EXISTS when the name is taken

  virtual ~FileSystem() = default;

  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path,
                                                                     WriteMode mode) = 0;
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) = 0;
  virtual absl::Status MakeDirectory(const std::string& path) = 0;  // its parent must exist
  // Makes the names in the folder (created, renamed, removed) survive a power cut.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Names without "." and "..", sorted.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  virtual absl::StatusOr<FileInfo> GetInfo(const std::string& path) = 0;
  // A text of at most 48 bytes that stays the same when the folder is renamed, and that a copy of
  // the folder does not share: inode number and, where the file system keeps it, time of creation.
  virtual absl::StatusOr<std::string> FolderIdentity(const std::string& path) = 0;
  // Atomic. Replaces a file; a folder in the way is ALREADY_EXISTS.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Atomic: both exist and swap names. UNIMPLEMENTED where the file system cannot.
  virtual absl::Status Exchange(const std::string& a, const std::string& b) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;  // empty
  // What this process may still write to the disk of the folder.
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& folder) = 0;
  // Exclusive, across processes and within one; creates the file. Never waits: UNAVAILABLE when
  // held.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;
};

// The machine's own. New files have mode 0600 less umask, folders 0700.
class PosixFileSystem final : public FileSystem {
 public:
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
};

// "folder/name"; the folder may end with a slash or be empty.
std::string JoinPath(absl::string_view folder, absl::string_view name);

// What stands before the last slash, "." without one, "/" for a name at the root; and what stands
// behind it.
std::string FolderOf(absl::string_view path);
std::string FileNameOf(absl::string_view path);

absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path);

// Temporary file beside it, sync, rename, sync of the folder: the old or the new contents, never a
// mixture.
absl::Status WriteFileAtomically(FileSystem& files, const std::string& path,
                                 absl::string_view contents);

// Creates the folder and its missing parents; fine when it exists.
absl::Status MakeDirectories(FileSystem& files, const std::string& path);

// A folder with everything in it, or a file. Fine when it does not exist. Does not follow links.
absl::Status RemoveRecursively(FileSystem& files, const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_FILE_SYSTEM_H_
