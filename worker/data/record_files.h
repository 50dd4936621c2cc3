// Expands the input paths of a TFRecord reader to files.
#ifndef PUSHPULL_WORKER_DATA_RECORD_FILES_H_
#define PUSHPULL_WORKER_DATA_RECORD_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pushpull {

// Returns the files that the paths name, in order. Each path is a file, a glob
// ("a.record-?????-of-00010", whose matches are sorted) or a set of shards ("a.record@10", which
// means the same ten files). If a file has exactly the name of a path, the path means that file.
// Looks only at the local file system and opens no file. Thread-safe.
// NOT_FOUND: a file does not exist, a glob matches nothing, or shards are missing from a set.
// INVALID_ARGUMENT: there is no path, or a path is the PATH_TO_BE_CONFIGURED of a sample config, is
// remote ("gs://..."), is a folder, has a number of shards outside 1 to 99999, or names a file that
// is already in the list. Errors of a file or folder that cannot be looked at or listed: as in
// read_error.h.
absl::StatusOr<std::vector<std::string>> ExpandRecordPaths(const std::vector<std::string>& paths);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_RECORD_FILES_H_
