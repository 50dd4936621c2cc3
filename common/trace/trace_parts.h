// A trace that several processes write: each its part, put together at the end.
#ifndef PUSHPULL_COMMON_TRACE_TRACE_PARTS_H_
#define PUSHPULL_COMMON_TRACE_TRACE_PARTS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "common/file_system.h"

namespace pushpull {

// The numbers of the processes in a trace, the same for all files of a job.
inline int TraceProcessOfTask(int task) { return 1 + task; }
inline int TraceProcessOfClone(uint32_t worker_id) {
  return 1'000'000 + static_cast<int>(worker_id);
}

// The part of the trace `path` that process `pid` of clone `clone` writes: a file beside it, and a
// trace of its own.
std::string TracePartPath(const std::string& path, int clone, int pid);

// Makes an empty trace `path` and removes parts that an earlier worker has left. Errors: of the
// file, whose folder must exist.
absl::Status StartTrace(FileSystem& files, const std::string& path);

// Writes the events of all parts into `path` and removes the parts. One whose process was killed
// gives its whole lines. Memory: the largest part.
absl::Status MergeTraceParts(FileSystem& files, const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_TRACE_TRACE_PARTS_H_
