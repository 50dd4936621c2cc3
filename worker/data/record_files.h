// The files that the input paths of a TFRecord reader mean.
#ifndef PUSHPULL_WORKER_DATA_RECORD_FILES_H_
#define PUSHPULL_WORKER_DATA_RECORD_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pushpull {

// Each path is a file, a glob ("a.record-?????-of-00010", sorted) or shards ("a.record@10": the
// same ten files); a file of exactly that name comes before its other meanings. Looks at the
// machine's own file system, opens nothing. NOT_FOUND: no such file, a glob that nothing matches,
// shards missing from a set of them. INVALID_ARGUMENT: no path at all, a sample config's
// PATH_TO_BE_CONFIGURED, remote storage
// ("gs://..."), a folder, a file meant twice.
absl::StatusOr<std::vector<std::string>> ExpandRecordPaths(const std::vector<std::string>& paths);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_RECORD_FILES_H_
