// Tested by tests/common/base/file_system_test.cc.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

#include "common/base/file_system.h"
#include "common/base/passing_error.h"

namespace pushpull {
namespace {

absl::Status StatusOfErrno(int error, absl::string_view what, absl::string_view path) {
  const std::string message = absl::StrCat(what, " ", path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EEXIST:
    case ENOTEMPTY:
    case EISDIR:
      return absl::AlreadyExistsError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case EMFILE:
      return absl::ResourceExhaustedError(
          absl::StrCat(message, "; raise the limit of this process (ulimit -n, LimitNOFILE=)"));
    case ELOOP:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(message);
    case EFBIG:
      return absl::ResourceExhaustedError(absl::StrCat(
          message, "; raise the limit of this process (ulimit -f, LimitFSIZE=), if it has one"));
    case ENOSPC:
    case EDQUOT:
    case ENFILE:
      return absl::ResourceExhaustedError(message);
    case EWOULDBLOCK:
      return absl::UnavailableError(message);
    case ENOSYS:
    case EINVAL:
    case EOPNOTSUPP:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

absl::Status ErrnoToStatus(int error, absl::string_view what, absl::string_view path) {
  const absl::Status status = StatusOfErrno(error, what, path);
  return IsPassingErrno(error) ? MarkPassing(status) : status;
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) close(fd_);
  }

  absl::Status Append(absl::string_view data) override {
    while (!data.empty()) {
      const ssize_t written = write(fd_, data.data(), data.size());
      if (written < 0) {
        if (errno == EINTR) continue;
        return ErrnoToStatus(errno, "write", path_);
      }
      data.remove_prefix(written);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (fsync(fd_) != 0) return ErrnoToStatus(errno, "fsync", path_);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    const int result = close(fd_);
    fd_ = -1;
    if (result != 0) return ErrnoToStatus(errno, "close", path_);
    return absl::OkStatus();
  }

 private:
  int fd_;
  std::string path_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(int fd, int64_t size, std::string path)
      : fd_(fd), size_(size), path_(std::move(path)) {}
  ~PosixReadableFile() override { close(fd_); }

  int64_t size_bytes() const override { return size_; }

  absl::Status ReadAt(int64_t offset, void* destination, int64_t size) const override {
    char* out = static_cast<char*>(destination);
    while (size > 0) {
      const ssize_t got = pread(fd_, out, size, offset);
      if (got < 0) {
        if (errno == EINTR) continue;
        return ErrnoToStatus(errno, "read", path_);
      }
      if (got == 0) return EndsBefore(offset + size);
      out += got;
      offset += got;
      size -= got;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Payload> Map() const override {
    if (size_ == 0) return Payload{};
    void* address = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd_, 0);
    if (address == MAP_FAILED) return ErrnoToStatus(errno, "mmap", path_);
    const size_t size = size_;
    std::shared_ptr<const void> owner(
        address, [size](const void* p) { munmap(const_cast<void*>(p), size); });
    return Payload{std::move(owner), static_cast<const char*>(address), size};
  }

 private:
  // The file may have been shortened since it was opened, so its size is asked for again.
  absl::Status EndsBefore(int64_t expected_bytes) const {
    struct stat info;
    if (fstat(fd_, &info) != 0) return ErrnoToStatus(errno, "stat", path_);
    return absl::OutOfRangeError(absl::StrCat(path_, " ends at byte ", info.st_size,
                                              ", expected at least ", expected_bytes, " bytes"));
  }

  int fd_;
  int64_t size_;
  std::string path_;
};

class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(int fd) : fd_(fd) {}
  ~PosixFileLock() override { close(fd_); }  // closing the file releases its flock

 private:
  int fd_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WritableFile>> PosixFileSystem::OpenForWrite(const std::string& path,
                                                                            WriteMode mode) {
  const int flags =
      O_WRONLY | O_CREAT | O_CLOEXEC | (mode == WriteMode::kCreateNew ? O_EXCL : O_TRUNC);
  const int fd = open(path.c_str(), flags, 0600);
  if (fd < 0) return ErrnoToStatus(errno, "create", path);
  return std::make_unique<PosixWritableFile>(fd, path);
}

absl::StatusOr<std::unique_ptr<ReadableFile>> PosixFileSystem::OpenForRead(
    const std::string& path) {
  // O_NONBLOCK keeps the opening of a pipe without a writer from blocking. It has no effect on
  // regular files.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return ErrnoToStatus(errno, "open", path);
  struct stat info;
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return ErrnoToStatus(error, "stat", path);
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  }
  return std::make_unique<PosixReadableFile>(fd, info.st_size, path);
}

absl::Status PosixFileSystem::MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0) return ErrnoToStatus(errno, "create folder", path);
  return absl::OkStatus();
}

absl::Status PosixFileSystem::SyncDirectory(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoToStatus(errno, "open folder", path);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  if (result != 0) return ErrnoToStatus(error, "fsync folder", path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> PosixFileSystem::List(const std::string& path) {
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return ErrnoToStatus(errno, "list", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(folder)) {
    const absl::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int error = errno;
  closedir(folder);
  if (error != 0) return ErrnoToStatus(error, "list", path);
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<FileInfo> PosixFileSystem::GetInfo(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return ErrnoToStatus(errno, "stat", path);
  const int64_t modified = info.st_mtim.tv_sec * int64_t{1'000'000'000} + info.st_mtim.tv_nsec;
  return FileInfo{S_ISDIR(info.st_mode), info.st_size, modified};
}

absl::StatusOr<std::string> PosixFileSystem::FolderIdentity(const std::string& path) {
  struct statx info;
  if (statx(AT_FDCWD, path.c_str(), 0, STATX_INO | STATX_BTIME, &info) != 0) {
    return ErrnoToStatus(errno, "stat", path);
  }
  std::string identity = absl::StrCat("inode ", info.stx_ino);
  if ((info.stx_mask & STATX_BTIME) != 0) {
    absl::StrAppend(&identity, " of ", info.stx_btime.tv_sec, ".", info.stx_btime.tv_nsec);
  }
  // State files have room for 48 bytes, which the longest numbers of inodes exceed.
  constexpr size_t kLongest = 48;
  return identity.size() <= kLongest ? identity : identity.substr(identity.size() - kLongest);
}

absl::Status PosixFileSystem::Rename(const std::string& from, const std::string& to) {
  // Checked here because rename(2) replaces an empty folder.
  struct stat info;
  if (lstat(to.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat("rename ", from, ": folder ", to, " exists"));
  }
  if (rename(from.c_str(), to.c_str()) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("rename ", from, " to"), to);
  }
  return absl::OkStatus();
}

absl::Status PosixFileSystem::Exchange(const std::string& a, const std::string& b) {
  if (renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("exchange ", a, " with"), b);
  }
  return absl::OkStatus();
}

absl::Status PosixFileSystem::RemoveFile(const std::string& path) {
  if (unlink(path.c_str()) != 0) return ErrnoToStatus(errno, "remove", path);
  return absl::OkStatus();
}

absl::Status PosixFileSystem::RemoveDirectory(const std::string& path) {
  if (rmdir(path.c_str()) != 0) return ErrnoToStatus(errno, "remove folder", path);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> PosixFileSystem::FreeBytes(const std::string& folder) {
  struct statvfs info;
  if (statvfs(folder.c_str(), &info) != 0) return ErrnoToStatus(errno, "statvfs", folder);
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

absl::StatusOr<std::unique_ptr<FileLock>> PosixFileSystem::Lock(const std::string& path) {
  for (;;) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return ErrnoToStatus(errno, "open lock", path);
    struct stat info;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 || fstat(fd, &info) != 0) {
      const int error = errno;
      close(fd);
      if (error == EWOULDBLOCK) {
        return absl::UnavailableError(absl::StrCat(path, " is locked by another process"));
      }
      return ErrnoToStatus(error, "lock", path);
    }
    if (info.st_nlink > 0) return std::make_unique<PosixFileLock>(fd);
    // The last holder removed the file between the two calls. Others would not see this lock.
    close(fd);
  }
}

int AllocateFile(int descriptor, int64_t size_bytes) {
  int error;
  do {
    error = posix_fallocate(descriptor, 0, size_bytes);
  } while (error == EINTR);
  return error;
}

}  // namespace pushpull
