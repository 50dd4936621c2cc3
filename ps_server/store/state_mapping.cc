#include "ps_server/store/state_mapping.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/status_macros.h"

namespace pushpull {
namespace {

absl::Status Failed(absl::string_view what, const std::string& path, int error) {
  return absl::UnavailableError(absl::StrCat(what, " ", path, ": ", std::strerror(error)));
}

absl::Status WriteAt(int fd, const std::string& path, const void* data, size_t size, off_t offset) {
  const ssize_t written = pwrite(fd, data, size, offset);
  if (written == static_cast<ssize_t>(size)) return absl::OkStatus();
  return Failed("cannot write", path, written < 0 ? errno : ENOSPC);
}

// Zeroed memory of this process alone, at that address if there is one; MAP_FAILED.
void* MapPrivate(void* at, int64_t size_bytes) {
  return mmap(at, size_bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED), -1, 0);
}

// What keeps an opened file from being taken over, or nothing.
std::string WhyFresh(int fd, const StateHeader& header) {
  struct stat info;
  if (fstat(fd, &info) != 0) return std::strerror(errno);
  if (info.st_size == 0) return "there was no state file";
  char bytes[sizeof(StateHeader)];
  const ssize_t got = pread(fd, bytes, sizeof(bytes), 0);
  if (got < 0) return std::strerror(errno);
  std::string mismatch = DescribeHeaderMismatch(absl::string_view(bytes, got), header);
  if (mismatch.empty() && info.st_size != header.total_bytes) {
    return absl::StrCat("it is damaged: ", info.st_size, " bytes, expected ", header.total_bytes);
  }
  return mismatch;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateMapping>> StateMapping::Open(const std::string& state_dir,
                                                                 const std::string& name,
                                                                 const StateHeader& header) {
  const std::string path = state_dir.empty() ? "" : absl::StrCat(state_dir, "/", name);
  std::unique_ptr<StateMapping> mapping(new StateMapping(path, header.total_bytes));
  if (state_dir.empty()) {
    LOG(WARNING) << "no state_dir: variables are in anonymous memory; a killed ps_server goes back "
                    "to its last checkpoint";
  } else {
    std::error_code ignored;  // open tells it better
    std::filesystem::create_directories(state_dir, ignored);
    absl::Status status = mapping->OpenAndLock();
    if (absl::IsFailedPrecondition(status)) return status;
    if (status.ok()) status = mapping->MapFile(header);
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
  CloseFile();
}

void StateMapping::CloseFile() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

absl::Status StateMapping::OpenAndLock() {
  for (;;) {
    fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd_ < 0) return Failed("cannot open", path_, errno);
    struct stat opened;
    if (fstat(fd_, &opened) != 0) return Failed("cannot look at", path_, errno);
    if (!S_ISREG(opened.st_mode) || opened.st_uid != geteuid()) {
      CloseFile();
      return absl::UnavailableError(absl::StrCat(path_, " is not a file of this user"));
    }
    if (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      StateControl control{};
      const bool known = pread(fd_, &control, sizeof(control), kStateControlOffset) ==
                         static_cast<ssize_t>(sizeof(control));
      const int error = errno;
      CloseFile();
      if (error != EWOULDBLOCK && !known) return Failed("cannot lock", path_, error);
      return absl::FailedPreconditionError(absl::StrCat(
          "state file ", path_, " is in use by another ps_server (process ",
          known ? absl::StrCat(control.pid) : "unknown", "): stop it or use another --state_dir"));
    }
    // The owner before us may have unlinked it between open and lock.
    struct stat named;
    if (stat(path_.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
        named.st_dev == opened.st_dev) {
      return absl::OkStatus();
    }
    CloseFile();
  }
}

absl::Status StateMapping::MapFile(const StateHeader& header) {
  fresh_reason_ = WhyFresh(fd_, header);
  absl::Status status;
  if (!fresh_reason_.empty()) {
    LOG(INFO) << "state file " << path_ << " starts empty: " << fresh_reason_;
    // The header comes after the room: a file that has one is complete.
    StateControl control{HeldWord().Encode(), 0};
    if (ftruncate(fd_, 0) != 0) {
      status = Failed("cannot empty", path_, errno);
    } else if (const int error = posix_fallocate(fd_, 0, size_); error != 0) {
      status = Failed("no room for", path_, error);
    } else {
      status = WriteAt(fd_, path_, &control, sizeof(control), kStateControlOffset);
      status.Update(WriteAt(fd_, path_, &header, sizeof(header), 0));
    }
  }
  if (status.ok()) {
    void* const data = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (data != MAP_FAILED) {
      data_ = static_cast<char*>(data);
      control()->pid = getpid();
      return absl::OkStatus();
    }
    status = Failed("cannot map", path_, errno);
  }
  unlink(path_.c_str());
  CloseFile();
  return status;
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
  // The copy takes the place of the file's pages in one step: readers see the same bytes all along.
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
  if (!is_file() || unlink(path_.c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return Failed("cannot remove", path_, errno);
}

}  // namespace pushpull
