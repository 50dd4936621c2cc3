#include "common/wire/shared_memory/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/file_system.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr char kName[] = "pushpull";
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// The target of a symbolic link in /proc; nullopt, with errno set, if it cannot be read.
std::optional<std::string> LinkTarget(const std::string& path) {
  char target[256];
  const ssize_t size = readlink(path.c_str(), target, sizeof(target));
  if (size < 0) return std::nullopt;
  return std::string(target, size);
}

absl::Status CannotAttach(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot use the shared memory at ", path, ": ", why));
}

}  // namespace

std::string HostIdentity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  std::getline(file, boot_id);
  const std::optional<std::string> processes = LinkTarget("/proc/self/ns/pid");
  if (boot_id.empty() || !processes.has_value()) return "";
  return absl::StrCat(boot_id, " ", *processes);
}

absl::StatusOr<std::unique_ptr<SealedMemory>> SealedMemory::Create(size_t size_bytes) {
  const int descriptor = memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) {
    return absl::UnimplementedError(absl::StrCat("memfd_create: ", std::strerror(errno)));
  }
  std::unique_ptr<SealedMemory> memory(new SealedMemory(descriptor, size_bytes));
  // Allocates the pages now: if memory ran out on a later access, SIGBUS would kill the process.
  if (const int error = AllocateFile(descriptor, static_cast<int64_t>(size_bytes)); error != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no ", size_bytes, " bytes of shared memory: ", std::strerror(error)));
  }
  if (fchmod(descriptor, 0600) != 0 || fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) {
    return absl::UnimplementedError(
        absl::StrCat("cannot seal shared memory: ", std::strerror(errno)));
  }
  PP_RETURN_IF_ERROR(memory->Map());
  return memory;
}

absl::StatusOr<std::unique_ptr<SealedMemory>> SealedMemory::Attach(int64_t pid, int descriptor,
                                                                   size_t size_bytes) {
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", descriptor);
  // The link is checked before it is opened because opening another kind of file can have effects.
  const std::optional<std::string> target = LinkTarget(path);
  if (!target.has_value()) return CannotAttach(path, std::strerror(errno));
  if (!absl::StartsWith(*target, absl::StrCat("/memfd:", kName))) {
    return CannotAttach(path, "it is something else");
  }
  const int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return CannotAttach(path, std::strerror(errno));
  std::unique_ptr<SealedMemory> memory(new SealedMemory(own, size_bytes));
  struct stat info;
  if (fstat(own, &info) != 0) return CannotAttach(path, std::strerror(errno));
  if (static_cast<size_t>(info.st_size) != size_bytes) {
    return CannotAttach(path,
                        absl::StrCat("it has ", info.st_size, " bytes, expected ", size_bytes));
  }
  const int seals = fcntl(own, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return CannotAttach(path, "it is not sealed");
  PP_RETURN_IF_ERROR(memory->Map());
  return memory;
}

SealedMemory::~SealedMemory() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
  close(descriptor_);
}

absl::Status SealedMemory::Map() {
  void* const data = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map shared memory: ", std::strerror(errno)));
  }
  data_ = static_cast<char*>(data);
  return absl::OkStatus();
}

}  // namespace pushpull
