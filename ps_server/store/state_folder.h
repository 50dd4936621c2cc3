// Lists and removes the state files in a folder, for `psctl state list` and `psctl state clean`.
// Thread-safe, without state.
#ifndef PUSHPULL_PS_SERVER_STORE_STATE_FOLDER_H_
#define PUSHPULL_PS_SERVER_STORE_STATE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"

namespace pushpull {

// Returns where ps_server maps its state by default: a folder under /dev/shm for this user alone.
std::string DefaultStateDir();

struct StateFileInfo {
  enum class Use {
    kInUse,      // another process holds its lock, normally a running ps_server
    kResumable,  // the next ps_server on its train_dir will continue from it
    kAbandoned,  // no ps_server will use it; `reason` says why
    kUnknown,    // unreadable, no state file, or its train_dir is elsewhere; `reason` says which
  };
  std::string path;
  int64_t size_bytes = 0;
  Use use = Use::kUnknown;
  std::string reason;  // set for kAbandoned and kUnknown
  // From the header; empty or 0 if no header is readable.
  std::string run_id;  // 32 hex digits
  std::string train_dir;
  std::string folder_identity;  // StateOwner::folder_identity
  int shard = 0;
  int tasks = 0;
  std::optional<uint64_t> newest_version;  // nothing: no whole version
  int64_t pid = 0;                         // of the last process that mapped it
};

// Describes all regular files of the folder, sorted by name; empty if there is no such folder.
// Opens and locks each file for a moment and never writes to it. Returns the errors of
// FileSystem::List.
absl::StatusOr<std::vector<StateFileInfo>> ListStateFiles(FileSystem& files,
                                                          const std::string& folder);

// Removes the files that are kAbandoned and the kResumable or kUnknown ones that `also` selects;
// never a file in use. Returns the removed files. Stops at the first file that cannot be removed.
//   UNAVAILABLE: names the file and the cause
absl::StatusOr<std::vector<StateFileInfo>> CleanStateFiles(
    FileSystem& files, const std::string& folder,
    const std::function<bool(const StateFileInfo&)>& also);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_STATE_FOLDER_H_
