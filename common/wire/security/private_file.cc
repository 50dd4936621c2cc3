// Tested by tests/common/wire/security/tls_files_test.cc.
// Tested by tests/common/wire/security/peer_secret_test.cc.
#include "common/wire/security/private_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/passing_error.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status CannotBeRead(int error) {
  const std::string message = absl::StrCat("cannot be read: ", strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(strerror(error));
  if (IsPassingErrno(error)) return MarkPassing(absl::InternalError(message));
  return absl::PermissionDeniedError(message);
}

absl::Status CheckMode(const struct stat& info) {
  // Kubernetes mounts a secret as root's file, which the container's user reads through the group.
  const bool roots = info.st_uid == 0 && geteuid() != 0;
  const mode_t forbidden = roots ? 0027 : 0077;
  if ((info.st_mode & forbidden) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrFormat("its mode %04o gives others access to the secret in it; chmod 600 it",
                      static_cast<unsigned>(info.st_mode & 07777)));
}

}  // namespace

absl::StatusOr<std::string> ReadSecurityFile(const std::string& path, Secrecy secrecy) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return CannotBeRead(errno);
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return CannotBeRead(errno);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError("is not a regular file");
  if (secrecy == Secrecy::kPrivate) PP_RETURN_IF_ERROR(CheckMode(info));
  std::string text(kMaxFileBytes + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CannotBeRead(errno);
    if (got == 0) break;
    size += got;
  }
  if (size > kMaxFileBytes) return absl::InvalidArgumentError("is larger than 1 MiB");
  text.resize(size);
  return text;
}

}  // namespace pushpull
