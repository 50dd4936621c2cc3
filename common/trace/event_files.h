// Finds out from the event files in a folder whether a run has trained there.
//
// Thread rule: a thread-safe function.
#ifndef PUSHPULL_COMMON_TRACE_EVENT_FILES_H_
#define PUSHPULL_COMMON_TRACE_EVENT_FILES_H_

#include <string>

#include "common/base/file_system.h"

namespace pushpull {

// Returns the path of an event file in the folder that has scalars of a training step; empty: there
// is none. Reads the first few records of each file; one that cannot be read does not count. Blocks
// on the disk.
std::string FindTrainedEvents(FileSystem& files, const std::string& folder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_TRACE_EVENT_FILES_H_
