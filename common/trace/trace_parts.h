// A trace of several processes. Each process writes a part, a file beside the trace; at the end the
// parts are merged. The functions block on the disk.
#ifndef PUSHPULL_COMMON_TRACE_TRACE_PARTS_H_
#define PUSHPULL_COMMON_TRACE_TRACE_PARTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "common/base/file_system.h"

namespace pushpull {

// The process numbers in a trace. They are unique within a job, so its traces can be combined.
inline int TraceProcessOfTask(int task) { return 1 + task; }
inline int TraceProcessOfClone(uint32_t worker_id) {
  return 1'000'000 + static_cast<int>(worker_id);
}

// Returns the path of the part of the trace `path` that process `pid` of clone `clone` writes. The
// part is itself a complete trace.
std::string TracePartPath(const std::string& path, int clone, int pid);

// Writes an empty trace to `path` and removes parts that an earlier worker has left: the files with
// names of TracePartPath, and no others. The folder of `path` must exist. Returns errors of the
// file system. Two workers must not run with the same path, because each would take the other's
// parts.
absl::Status StartTrace(FileSystem& files, const std::string& path);

// Writes the events of all parts to `path` and removes the parts. Of a part whose process was
// killed, it takes all complete lines. Needs memory for the largest part.
absl::Status MergeTraceParts(FileSystem& files, const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_TRACE_TRACE_PARTS_H_
