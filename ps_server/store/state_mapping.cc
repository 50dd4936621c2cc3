// Tested by tests/ps_server/store/state_file_test.cc.
// Tested by tests/ps_server/store/variable_store_test.cc.
#include "ps_server/store/state_mapping.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "glog/logging.h"

#include "common/base/file_system.h"
#include "common/base/passing_error.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

absl::Status Failed(absl::string_view what, const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat(what, " ", path, ": ", std::strerror(error)));
}

// For the renaming of a state file: UNAVAILABLE may be cured by another attempt,
// FAILED_PRECONDITION not. A process that is started later may succeed after an error that is
// marked as passing.
absl::Status RenameFailed(const std::string& from, const std::string& to, int error) {
  absl::Status status =
      Failed("cannot rename", absl::StrCat("state file ", from, " to ", to), error);
  for (const int lasting : {EISDIR, ENOTDIR, ENOTEMPTY, EACCES, EPERM, EROFS}) {
    if (error == lasting) status = absl::FailedPreconditionError(status.message());
  }
  return IsPassingErrno(error) ? MarkPassing(std::move(status)) : status;
}

absl::Status WriteAt(int fd, const std::string& path, const void* data, size_t size, off_t offset) {
  const ssize_t written = pwrite(fd, data, size, offset);
  if (written == static_cast<ssize_t>(size)) return absl::OkStatus();
  return Failed("cannot write", path, written < 0 ? errno : ENOSPC);
}

// Maps zeroed private memory, at the address `at` unless that is null. Returns MAP_FAILED on error.
void* MapPrivate(void* at, int64_t size_bytes) {
  return mmap(at, size_bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED), -1, 0);
}

// Returns why the state in an opened file cannot be taken over; empty if it can. UNAVAILABLE: the
// file cannot be read, so nobody knows what it holds.
absl::StatusOr<std::string> WhyFresh(int fd, const std::string& path, const StateHeader& header) {
  struct stat info;
  if (fstat(fd, &info) != 0) return Failed("cannot look at", path, errno);
  char bytes[sizeof(StateHeader)];
  const ssize_t got = pread(fd, bytes, sizeof(bytes), 0);
  if (got < 0) return Failed("cannot read", path, errno);
  std::string mismatch = DescribeHeaderMismatch(absl::string_view(bytes, got), header);
  if (mismatch.empty() && info.st_size != header.total_bytes) {
    return absl::StrCat("it is damaged: ", info.st_size, " bytes, expected ", header.total_bytes);
  }
  return mismatch;
}

// Returns the newest version in an opened file of the run that `expected` names. Nothing: the file
// is of another run, is damaged, or holds no whole version.
std::optional<uint64_t> VersionOfSameRun(int fd, const StateHeader& expected) {
  char bytes[sizeof(StateHeader)];
  const ssize_t got = pread(fd, bytes, sizeof(bytes), 0);
  const absl::string_view text(bytes, std::max<ssize_t>(got, 0));
  StateHeader found;
  if (!IsOfSameRun(text, expected) || !ReadStateHeader(text, &found)) return std::nullopt;
  return ReadNewestVersion(fd, found);
}

// Makes the folder, for this user alone, if it is missing. Refuses a folder that another user could
// have prepared, because the owner of a folder can rename and remove the files in it.
//   NOT_FOUND: there is no folder and none can be made, so there is no earlier state either
//   UNAVAILABLE: it cannot be determined whether there is a folder
//   FAILED_PRECONDITION: others may rename the files in the folder
absl::Status PrepareFolder(const std::string& folder) {
  struct stat info;
  int error = stat(folder.c_str(), &info) == 0 ? 0 : errno;
  if (error == ENOENT) {
    std::error_code ignored;  // mkdir reports the error
    std::filesystem::create_directories(std::filesystem::path(folder).parent_path(), ignored);
    const bool made = mkdir(folder.c_str(), 0700) == 0;
    if (!made) return absl::NotFoundError(Failed("cannot make folder", folder, errno).message());
    error = stat(folder.c_str(), &info) == 0 ? 0 : errno;
  }
  if (error == ENOTDIR || (error == 0 && !S_ISDIR(info.st_mode))) {
    return absl::NotFoundError(absl::StrCat(folder, " is no folder"));
  }
  if (error != 0) return Failed("cannot look at", folder, error);
  const bool others_may_rename = (info.st_mode & 0022) != 0 && (info.st_mode & S_ISVTX) == 0;
  if ((info.st_uid != geteuid() && info.st_uid != 0) || others_may_rename) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the folder of mapped state, ", folder, ", belongs to user ", info.st_uid, " with mode ",
        absl::StrFormat("%04o", info.st_mode & 07777),
        ", so that others can rename the files in it: use another --state_dir, or remove it"));
  }
  return absl::OkStatus();
}

// Returns the path of a new file until it is adopted. It does not depend on the run: if a first
// start is killed before it has written run_id, the next one is another run. It then finds the file
// of the killed one, and empties it. Otherwise such starts would fill the folder, which may be
// memory.
std::string NewPathOf(const std::string& state_dir, const std::string& path,
                      const StateHeader& header) {
  const std::string identity = HeaderText(header.folder_identity);
  if (identity.empty()) return absl::StrCat(path, kNewSuffix);
  // Folders of two file systems may have the same identity.
  const std::string folder = absl::StrCat(identity, " at ", HeaderText(header.train_dir));
  return absl::StrCat(state_dir, "/", Sha256Hex(folder).substr(0, 2 * sizeof(header.run_id)), "-",
                      header.shard, "-of-", header.tasks, kNewSuffix);
}

enum class OpenMode { kExisting, kCreate };

// How long to wait for a lock. psctl holds it while it looks at the file, and a pull that outlives
// the store of a stopped server holds it while it reads.
constexpr absl::Duration kLockPatience = absl::Milliseconds(200);

// Opens the file at `path`. Returns its descriptor, or -1 if there is no file (kExisting only).
// Errors: as OpenAndLock.
absl::StatusOr<int> OpenStateFile(const std::string& path, OpenMode mode) {
  const int create = mode == OpenMode::kCreate ? O_CREAT : 0;
  const int fd = open(path.c_str(), O_RDWR | create | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  const int error = fd < 0 ? errno : 0;
  if (error == ENOENT && mode == OpenMode::kExisting) return -1;
  struct stat opened {};
  // Access may be denied to the file or to the folder.
  const bool is_denied = error == EACCES && lstat(path.c_str(), &opened) == 0;
  const bool is_something_else = error == ELOOP || error == EISDIR || error == ENXIO;
  if (error != 0 && !is_denied && !is_something_else) {
    return Failed(mode == OpenMode::kCreate ? "cannot make" : "cannot open", path, error);
  }
  if (error == 0 && fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) &&
      opened.st_uid == geteuid()) {
    return fd;
  }
  if (fd >= 0) close(fd);
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is not a regular file of this user: remove it or use another --state_dir"));
}

// The error for an opened file whose lock another process holds. Not UNAVAILABLE, after which the
// variables would go into anonymous memory.
absl::Status InUse(int fd, const std::string& path) {
  StateControl control{};
  const bool known = pread(fd, &control, sizeof(control), kStateControlOffset) ==
                     static_cast<ssize_t>(sizeof(control));
  return MarkPassing(absl::FailedPreconditionError(absl::StrCat(
      "state file ", path, " is in use by another ps_server (process ",
      known ? absl::StrCat(control.pid) : "unknown",
      "), which may be about to end. If this stays, stop that process; if it is of another job, "
      "give each job a --state_dir of its own")));
}

// Returns whether the path still names the opened file.
bool IsStillAt(const std::string& path, int fd) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

// Opens and locks the file at `path`. Returns its descriptor, which the caller must close, or -1 if
// there is no file (kExisting only). Waits up to kLockPatience for the lock.
//   FAILED_PRECONDITION: another process holds the lock, which may pass (IsPassing), or it is no
//     regular file of this user
//   UNAVAILABLE: any other failure
absl::StatusOr<int> OpenAndLock(const std::string& path, OpenMode mode) {
  constexpr absl::Duration kPause = absl::Milliseconds(5);
  for (absl::Duration waited;; waited += kPause) {
    PP_ASSIGN_OR_RETURN(const int fd, OpenStateFile(path, mode));
    if (fd < 0) return fd;
    const int error = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    // The previous holder of the lock may have renamed or unlinked the file before it was locked.
    if (error == 0 && IsStillAt(path, fd)) return fd;
    absl::Status failed;
    if (error == EWOULDBLOCK && waited >= kLockPatience) failed = InUse(fd, path);
    if (error != 0 && error != EWOULDBLOCK) failed = Failed("cannot lock", path, error);
    close(fd);
    PP_RETURN_IF_ERROR(failed);
    if (error != 0) absl::SleepFor(kPause);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateMapping>> StateMapping::Open(const std::string& state_dir,
                                                                 const std::string& name,
                                                                 const StateHeader& header) {
  const std::string path = state_dir.empty() ? "" : absl::StrCat(state_dir, "/", name);
  std::unique_ptr<StateMapping> mapping(
      new StateMapping(path, NewPathOf(state_dir, path, header), header.total_bytes));
  if (state_dir.empty()) {
    LOG(WARNING) << "no state_dir: variables are in anonymous memory; a killed ps_server goes back "
                    "to its last checkpoint";
  } else {
    absl::Status status = PrepareFolder(state_dir);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    if (status.ok()) {
      PP_RETURN_IF_ERROR(mapping->TakeOverFile(header));
      if (mapping->is_file()) return mapping;
      status = mapping->MakeFile(header);
      // A server that ends removes a folder that it has made, once the folder is empty.
      if (!status.ok() && access(state_dir.c_str(), F_OK) != 0) {
        status = PrepareFolder(state_dir);
        if (status.ok()) status = mapping->MakeFile(header);
      }
    }
    if (absl::IsFailedPrecondition(status)) return status;
    if (status.ok()) return mapping;
    LOG(WARNING) << status.message() << " (" << header.total_bytes
                 << " bytes are needed); variables are in anonymous memory; a killed ps_server "
                    "goes back to its last checkpoint";
  }
  PP_RETURN_IF_ERROR(mapping->MapAnonymous(header));
  return mapping;
}

StateMapping::~StateMapping() {
  if (data_ != nullptr) munmap(data_, size_);
  for (const auto& [piece, size_bytes] : pieces_) munmap(piece, size_bytes);
  // The file was never given its final name, so no process will look for it.
  if (is_new_) unlink(new_path_.c_str());
  for (const int fd : {fd_, other_fd_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status StateMapping::TakeOverFile(const StateHeader& header) {
  absl::StatusOr<int> fd = OpenAndLock(path_, OpenMode::kExisting);
  if (fd.ok() && *fd < 0) {
    fresh_reason_ = "there was no state file";
    return absl::OkStatus();
  }
  absl::Status status = fd.status();
  if (status.ok()) {
    const absl::StatusOr<std::string> why = WhyFresh(*fd, path_, header);
    if (why.ok() && !why->empty()) {
      fresh_reason_ = *why;
      LOG(WARNING) << "state file " << path_ << " is not used: " << fresh_reason_;
      unfit_version_ = VersionOfSameRun(*fd, header);
      other_fd_ = *fd;
      return absl::OkStatus();
    }
    status = why.ok() ? MapFile(*fd, path_) : why.status();
    if (!status.ok()) close(*fd);
    if (status.ok()) NoteFolder(header);
  }
  if (!absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(
      absl::StrCat(status.message(),
                   "; the file is untouched and may hold the newest state of this run: start "
                   "again when the cause is gone, or use another --state_dir to go back to the "
                   "last checkpoint"));
}

void StateMapping::NoteFolder(const StateHeader& header) {
  StateHeader found;
  std::memcpy(&found, data_, sizeof(found));
  if (SetFolder(header, &found)) new_header_ = found;
}

absl::Status StateMapping::MakeFile(const StateHeader& header) {
  const std::string path = new_path_;
  PP_ASSIGN_OR_RETURN(const int fd, OpenAndLock(path, OpenMode::kCreate));
  // The header is written after the file has its full size, so a file with a header is complete.
  StateControl control{HeldWord().Encode(), 0};
  absl::Status status;
  if (ftruncate(fd, 0) != 0) {  // a process was killed before it adopted the file
    status = Failed("cannot empty", path, errno);
  } else if (const int error = AllocateFile(fd, size_); error != 0) {
    status = Failed("no room for", path, error);
  } else {
    status = WriteAt(fd, path, &control, sizeof(control), kStateControlOffset);
    status.Update(WriteAt(fd, path, &header, sizeof(header), 0));
  }
  if (status.ok()) status = MapFile(fd, path);
  if (status.ok()) {
    is_new_ = true;
    return absl::OkStatus();
  }
  unlink(path.c_str());
  close(fd);
  return status;
}

absl::Status StateMapping::MapFile(int fd, const std::string& path) {
  void* const data = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return Failed("cannot map", path, errno);
  data_ = static_cast<char*>(data);
  fd_ = fd;
  control()->pid = getpid();
  return absl::OkStatus();
}

absl::Status StateMapping::AdoptFile() {
  if (new_header_.has_value()) {
    // One call, so that a process that is killed leaves the whole old header or the whole new one.
    const absl::Status written = WriteAt(fd_, path_, &*new_header_, sizeof(*new_header_), 0);
    LOG_IF(WARNING, !written.ok()) << written.message();
    new_header_.reset();
  }
  if (!is_new_) return absl::OkStatus();
  if (other_fd_ >= 0) {
    std::string aside = absl::StrCat(path_, kAsideSuffix);
    for (int i = 2; access(aside.c_str(), F_OK) == 0; ++i) {
      aside = absl::StrCat(path_, kAsideSuffix, "-", i);
    }
    if (rename(path_.c_str(), aside.c_str()) == 0) {
      LOG(WARNING) << "the earlier state file is kept as " << aside << ", because " << fresh_reason_
                   << "; `psctl state clean` removes it";
    } else if (errno != ENOENT) {  // ENOENT: somebody has removed it meanwhile
      return RenameFailed(path_, aside, errno);
    }
    close(std::exchange(other_fd_, -1));
  }
  if (rename(new_path_.c_str(), path_.c_str()) != 0) {
    return RenameFailed(new_path_, path_, errno);
  }
  is_new_ = false;
  return absl::OkStatus();
}

absl::Status StateMapping::MapAnonymous(const StateHeader& header) {
  if (fresh_reason_.empty()) fresh_reason_ = "variables are in anonymous memory";
  void* const data =
      mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", size_, " bytes of variables: ", std::strerror(errno)));
  }
  data_ = static_cast<char*>(data);
  std::memcpy(data_, &header, sizeof(header));
  *control() = {HeldWord().Encode(), getpid()};
  return absl::OkStatus();
}

char* StateMapping::TakePiece(int64_t size_bytes) {
  if (!discarded_.empty()) {
    char* const piece = discarded_.back();
    discarded_.pop_back();
    return piece;
  }
  void* const piece = MapPrivate(nullptr, size_bytes);
  if (piece == MAP_FAILED) return nullptr;
  pieces_.emplace_back(static_cast<char*>(piece), size_bytes);
  return pieces_.back().first;
}

absl::StatusOr<char*> StateMapping::Detach(char* readers, int64_t offset, int64_t size_bytes) {
  const auto failed = [&] {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for another ", size_bytes, " bytes: ", std::strerror(errno)));
  };
  char* const piece = TakePiece(size_bytes);
  if (piece == nullptr) return failed();
  if (!is_file()) {
    std::memcpy(piece, readers, size_bytes);
    return piece;
  }
  void* const copy = MapPrivate(nullptr, size_bytes);
  if (copy == MAP_FAILED) {
    const absl::Status status = failed();
    Discard(piece, size_bytes);
    return status;
  }
  std::memcpy(copy, readers, size_bytes);
  // mremap replaces the file's pages by the copy in one step, so readers never see other bytes.
  if (mmap(piece, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd_, offset) ==
          MAP_FAILED ||
      mremap(copy, size_bytes, size_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, readers) == MAP_FAILED) {
    const absl::Status status = failed();
    munmap(copy, size_bytes);
    if (MapPrivate(piece, size_bytes) != MAP_FAILED) discarded_.push_back(piece);
    return status;
  }
  return piece;
}

void StateMapping::Discard(char* readers, int64_t size_bytes) {
  madvise(readers, size_bytes, MADV_DONTNEED);
  discarded_.push_back(readers);
}

absl::Status StateMapping::RemoveFile() {
  if (!is_file()) return absl::OkStatus();
  const std::string path = is_new_ ? new_path_ : path_;
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return Failed("cannot remove", path, errno);
  is_new_ = false;
  return absl::OkStatus();
}

}  // namespace pushpull
