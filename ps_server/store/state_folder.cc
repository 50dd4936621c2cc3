#include "ps_server/store/state_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "ps_server/store/state_file.h"

namespace pushpull {
namespace {

bool ReadAt(int fd, void* data, size_t size, off_t offset) {
  return pread(fd, data, size, offset) == static_cast<ssize_t>(size);
}

constexpr char kKilledEarly[] = "its ps_server was killed before it had recovered";

// Says whether a ps_server gives this name to a file that has no header yet.
bool IsNameOfNewFile(const std::string& name) {
  const size_t digits = 2 * sizeof(StateHeader::run_id);
  return absl::EndsWith(name, kNewSuffix) && name.size() > digits && name[digits] == '-' &&
         absl::c_all_of(name.substr(0, digits), absl::ascii_isxdigit);
}

// Returns why no ps_server will continue from the file; empty if one may.
std::string WhyAbandoned(const StateFileInfo& info, const StateHeader& header) {
  if (absl::StrContains(FileNameOf(info.path), kAsideSuffix)) {
    return "a ps_server has set it aside, because it did not fit its run";
  }
  if (absl::EndsWith(info.path, kNewSuffix)) return kKilledEarly;
  if (HeaderText(header.boot_id) != BootId())
    return "it was written before the machine last started";
  if (!info.newest_version.has_value()) return "it holds no whole version";
  return "";
}

// Returns why a ps_server may not find the file's train_dir any more; empty if it is at its path. A
// folder that was renamed, or that another process sees at another path, still is the train_dir of
// the file, so an answer proves nothing.
std::string WhyDoubtful(FileSystem& files, const StateFileInfo& info, const StateHeader& header) {
  if (info.train_dir.size() == sizeof(header.train_dir)) return "";  // the path was cut off
  const absl::StatusOr<std::string> identity = files.FolderIdentity(info.train_dir);
  const std::string stored = HeaderText(header.folder_identity);
  std::string found;
  if (absl::IsNotFound(identity.status())) {
    found = "its train_dir is not at this path";
  } else if (identity.ok() && !stored.empty() && *identity != stored) {
    found = "another folder is at the path of its train_dir";
  }
  if (found.empty()) return "";
  return absl::StrCat(found,
                      ". A server continues from this file if the folder was only renamed; if you "
                      "have deleted it, `psctl state clean ",
                      FileNameOf(info.path), "` removes the file");
}

// Fills in what the file says about itself. `fd` is open on the file.
void Describe(FileSystem& files, int fd, StateFileInfo* info) {
  struct stat stat_info;
  char bytes[sizeof(StateHeader)];
  StateHeader header;
  StateControl control{};
  if (fstat(fd, &stat_info) != 0 || !ReadAt(fd, bytes, sizeof(bytes), 0) ||
      !ReadAt(fd, &control, sizeof(control), kStateControlOffset) ||
      !ReadStateHeader(absl::string_view(bytes, sizeof(bytes)), &header) ||
      stat_info.st_size != header.total_bytes) {
    const bool is_new = IsNameOfNewFile(FileNameOf(info->path));
    info->use = is_new ? StateFileInfo::Use::kAbandoned : StateFileInfo::Use::kUnknown;
    info->reason = is_new ? kKilledEarly : "it is no state file of this version of ps_server";
    return;
  }
  info->run_id = absl::BytesToHexString(absl::string_view(header.run_id, sizeof(header.run_id)));
  info->train_dir = HeaderText(header.train_dir);
  info->folder_identity = HeaderText(header.folder_identity);
  info->shard = static_cast<int>(header.shard);
  info->tasks = static_cast<int>(header.tasks);
  info->pid = control.pid;
  info->newest_version = ReadNewestVersion(fd, header);
  info->reason = WhyAbandoned(*info, header);
  if (!info->reason.empty()) {
    info->use = StateFileInfo::Use::kAbandoned;
    return;
  }
  info->reason = WhyDoubtful(files, *info, header);
  info->use = info->reason.empty() ? StateFileInfo::Use::kResumable : StateFileInfo::Use::kUnknown;
}

// Opens, locks and describes one file, and unlinks it under the lock if `remove` says so. Returns
// nothing if the path is not a regular file.
absl::StatusOr<std::optional<StateFileInfo>> Visit(
    FileSystem& files, const std::string& path,
    const std::function<bool(const StateFileInfo&)>& remove) {
  StateFileInfo info;
  info.path = path;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  const auto close_fd = absl::MakeCleanup([fd] {
    if (fd >= 0) close(fd);
  });
  struct stat stat_info {};
  if (fd < 0 && (errno == ENOENT || errno == ELOOP)) return std::optional<StateFileInfo>();
  if (fd < 0 || fstat(fd, &stat_info) != 0) {
    info.reason = std::strerror(errno);
    if (remove(info)) {  // a ps_server could be using it
      return absl::UnavailableError(
          absl::StrCat("cannot remove ", path, ", because it cannot be opened: ", info.reason));
    }
    return std::optional<StateFileInfo>(std::move(info));
  }
  if (!S_ISREG(stat_info.st_mode)) return std::optional<StateFileInfo>();
  info.size_bytes = stat_info.st_size;
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  Describe(files, fd, &info);
  if (!locked) {
    info.use = StateFileInfo::Use::kInUse;
    info.reason = "";
  } else if (remove(info) && unlink(path.c_str()) != 0 && errno != ENOENT) {
    return absl::UnavailableError(absl::StrCat("cannot remove ", path, ": ", std::strerror(errno)));
  }
  return std::optional<StateFileInfo>(std::move(info));
}

// Visits all files of the folder in the order of their names.
absl::StatusOr<std::vector<StateFileInfo>> VisitAll(
    FileSystem& files, const std::string& folder,
    const std::function<bool(const StateFileInfo&)>& remove) {
  std::vector<StateFileInfo> result;
  const absl::StatusOr<std::vector<std::string>> names = files.List(folder);
  if (absl::IsNotFound(names.status())) return result;
  PP_RETURN_IF_ERROR(names.status());
  for (const std::string& name : *names) {
    PP_ASSIGN_OR_RETURN(std::optional<StateFileInfo> info,
                        Visit(files, JoinPath(folder, name), remove));
    if (info.has_value()) result.push_back(*std::move(info));
  }
  return result;
}

}  // namespace

std::string DefaultStateDir() { return absl::StrCat("/dev/shm/pushpull-", geteuid()); }

absl::StatusOr<std::vector<StateFileInfo>> ListStateFiles(FileSystem& files,
                                                          const std::string& folder) {
  return VisitAll(files, folder, [](const StateFileInfo&) { return false; });
}

absl::StatusOr<std::vector<StateFileInfo>> CleanStateFiles(
    FileSystem& files, const std::string& folder,
    const std::function<bool(const StateFileInfo&)>& also) {
  const auto goes = [&](const StateFileInfo& info) {
    return info.use == StateFileInfo::Use::kAbandoned || also(info);
  };
  PP_ASSIGN_OR_RETURN(std::vector<StateFileInfo> all, VisitAll(files, folder, goes));
  std::erase_if(all, [&](const StateFileInfo& info) {
    return info.use == StateFileInfo::Use::kInUse || !goes(info);
  });
  return all;
}

}  // namespace pushpull
