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

// Follows links.
PathKind KindOfPath(const std::string& path);

// Returns whether the path has one of the characters *, ? and [.
bool IsGlob(const std::string& path);

// Returns the files and folders that match the pattern, sorted by name. NOT_FOUND: nothing matches.
// INVALID_ARGUMENT: a folder cannot be read.
absl::StatusOr<std::vector<std::string>> MatchGlob(const std::string& pattern);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_FILE_GLOB_H_
