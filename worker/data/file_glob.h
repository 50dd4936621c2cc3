// Questions about local paths that users give: what they name, and which files match a pattern.
//
// Thread rule: functions without shared state. All may block on the disk.
#ifndef PUSHPULL_WORKER_DATA_FILE_GLOB_H_
#define PUSHPULL_WORKER_DATA_FILE_GLOB_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pushpull {

enum class PathKind { kAbsent, kFile, kFolder };

// Follows links. A link that leads nowhere is absent. Errors: those of read_error.h but NOT_FOUND,
// so that a path that cannot be looked at is not taken for an absent one.
absl::StatusOr<PathKind> KindOfPath(const std::string& path);

// Returns whether the path has one of the characters *, ? and [.
bool IsGlob(const std::string& path);

// Returns the files and folders that match the pattern, sorted by name. NOT_FOUND: nothing matches.
// If a folder whose names are compared with the pattern cannot be listed, the error is that of
// read_error.h for this folder, because a part of the matches would be missing.
absl::StatusOr<std::vector<std::string>> MatchGlob(const std::string& pattern);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_FILE_GLOB_H_
