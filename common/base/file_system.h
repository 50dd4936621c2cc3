// The file operations that the project needs, behind an interface. A test replaces it by
// tests/testkit/memory_file_system.h, where the k-th call can fail and everything that was not
// synced can be lost.
//
// Every error names the path and the reason: NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED,
// RESOURCE_EXHAUSTED (disk or quota full, too many open files, a limit of file sizes),
// INVALID_ARGUMENT (a path that is too long, a circular link), UNAVAILABLE (the lock is held),
// UNIMPLEMENTED (the file system cannot do this), INTERNAL (I/O error). IsPassing (passing_error.h)
// is true for those that may pass, such as a full disk.
//
// FileSystem and ReadableFile are thread-safe; a WritableFile belongs to one thread at a time. An
// open file stays usable after its name is removed. All calls may block on the disk.
#ifndef PUSHPULL_COMMON_BASE_FILE_SYSTEM_H_
#define PUSHPULL_COMMON_BASE_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/payload.h"

namespace pushpull {

// A file that is written from front to back, without a buffer: every Append goes to the kernel.
class WritableFile {
 public:
  // Closes the file if it is open, without reporting an error.
  virtual ~WritableFile() = default;
  virtual absl::Status Append(absl::string_view data) = 0;
  // Blocks until the contents are on the disk. After a failed Sync the file must be given up: the
  // kernel may have dropped the dirty pages, so a second Sync could succeed without having written
  // them.
  virtual absl::Status Sync() = 0;
  virtual absl::Status Close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual int64_t size_bytes() const = 0;  // the size when the file was opened
  // Reads exactly `size` bytes from byte `offset`. OUT_OF_RANGE: the file ends before that.
  virtual absl::Status ReadAt(int64_t offset, void* destination, int64_t size) const = 0;
  // Maps the whole file; the mapping lives as long as a copy of the payload's owner. Only for files
  // that nobody shortens: reading a page that is gone raises SIGBUS instead of returning an error.
  virtual absl::StatusOr<Payload> Map() const = 0;
};

struct FileInfo {
  bool is_directory = false;
  int64_t size_bytes = 0;
  // Changes when the file's contents do. Comparable only with values of the same file.
  int64_t modification_time = 0;
};

// A lock taken by FileSystem::Lock. The destructor releases it.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

class FileSystem {
 public:
  enum class WriteMode {
    kCreateNew,  // ALREADY_EXISTS: the name is taken
    kTruncate    // replaces the contents of an existing file
  };

  virtual ~FileSystem() = default;

  virtual absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path,
                                                                     WriteMode mode) = 0;
  // FAILED_PRECONDITION: the path is not a regular file. Does not block on a pipe without a writer.
  virtual absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) = 0;
  virtual absl::Status MakeDirectory(const std::string& path) = 0;  // the parent must exist
  // Blocks until the names that were created, renamed or removed in the folder would survive a
  // power cut.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Returns the names in the folder, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  // Does not follow a symbolic link.
  virtual absl::StatusOr<FileInfo> GetInfo(const std::string& path) = 0;
  // Returns a text that stays the same when the folder is renamed and that differs for a copy of
  // the folder. It holds the inode number and, where the file system records it, the creation time.
  // At most 48 bytes, the room that a state file (ps_server/store/state_file.h) has for it.
  virtual absl::StatusOr<std::string> FolderIdentity(const std::string& path) = 0;
  // Renames atomically. Replaces an existing file. ALREADY_EXISTS: `to` is a folder.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  // Swaps two existing names atomically. UNIMPLEMENTED: the file system cannot do this.
  virtual absl::Status Exchange(const std::string& a, const std::string& b) = 0;
  virtual absl::Status RemoveFile(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;  // the folder must be empty
  // Returns how many bytes this process may still write to the disk that holds the folder.
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& folder) = 0;
  // Takes an exclusive lock on the file, which is created if missing. The lock excludes other
  // processes and other holders in this process. Never waits. UNAVAILABLE: the lock is held.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;
};

// The machine's file system. New files get mode 0600 and new folders 0700, both reduced by the
// umask.
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

// Returns "folder/name". `folder` may end with a slash; if it is empty, the result is `name`.
std::string JoinPath(absl::string_view folder, absl::string_view name);

// Returns the part of the path before the last slash: "." if there is no slash, "/" for a name at
// the root.
std::string FolderOf(absl::string_view path);
// Returns the part of the path after the last slash.
std::string FileNameOf(absl::string_view path);

// INVALID_ARGUMENT: the file has more than 4 GiB, so it cannot be the one that is meant.
absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path);

// Replaces the contents of a file atomically and durably: after a crash the file holds the old or
// the new contents, never a mixture. Writes and syncs a temporary file (.tmp-*) in the same folder,
// renames it and syncs the folder. If only the last sync fails, the new contents are in place.
absl::Status WriteFileAtomically(FileSystem& files, const std::string& path,
                                 absl::string_view contents);

// Allocates disk space for the first size_bytes of an open file, and extends the file to that size
// if it is shorter. Repeats the call when a signal interrupts it (tmpfs on Linux 6.1). Returns 0 or
// an errno.
int AllocateFile(int descriptor, int64_t size_bytes);

// Creates the folder and its missing parents, and makes their names survive a power cut: it syncs
// the parent of each folder that it creates, and logs a failure of that. OK if the folder exists.
// FAILED_PRECONDITION: the path, or one of its parents, is a file.
absl::Status MakeDirectories(FileSystem& files, const std::string& path);

// Removes a file, or a folder with everything in it. OK if the path does not exist. Removes
// symbolic links instead of following them.
absl::Status RemoveRecursively(FileSystem& files, const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_FILE_SYSTEM_H_
