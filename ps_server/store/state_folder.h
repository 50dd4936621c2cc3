// The state files in a folder as an operator sees them: `psctl state list` and `psctl state clean`.
#ifndef PUSHPULL_PS_SERVER_STORE_STATE_FOLDER_H_
#define PUSHPULL_PS_SERVER_STORE_STATE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/file_system.h"

namespace pushpull {

// Where ps_server maps its state by default: a folder of this user alone under /dev/shm.
std::string DefaultStateDir();

struct StateFileInfo {
  enum class Use {
    kInUse,      // a running ps_server holds its lock
    kResumable,  // the next ps_server on its train_dir goes on from it
    kAbandoned,  // no ps_server will use it; `reason` says why
    kUnknown,    // it could not be read, or is no state file; `reason` says why
  };
  std::string path;
  int64_t size_bytes = 0;
  Use use = Use::kUnknown;
  std::string reason;  // kAbandoned, kUnknown
  // What the header says; empty or 0 where there is no readable header.
  std::string run_id;  // 32 hex digits
  std::string train_dir;
  int shard = 0;
  int tasks = 0;
  std::optional<uint64_t> newest_version;  // nothing: no whole version
  int64_t pid = 0;                         // of the last process that mapped it
};

// All regular files of the folder, by name; none when there is no such folder. A file is opened and
// locked for a moment and never written to.
absl::StatusOr<std::vector<StateFileInfo>> ListStateFiles(FileSystem& files,
                                                          const std::string& folder);

// Removes the files that are kAbandoned and, where `also` says so, those that are kResumable or
// kUnknown; never one that is in use. Returns what it has removed; errors name the file.
absl::StatusOr<std::vector<StateFileInfo>> CleanStateFiles(
    FileSystem& files, const std::string& folder,
    const std::function<bool(const StateFileInfo&)>& also);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_STORE_STATE_FOLDER_H_
