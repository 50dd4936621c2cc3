// Writes two files that belong together. Thread-safe functions.
#ifndef PUSHPULL_WORKER_EXPORT_FILE_PAIR_H_
#define PUSHPULL_WORKER_EXPORT_FILE_PAIR_H_

#include <string>

#include "absl/status/status.h"

#include "common/base/file_system.h"

namespace pushpull {

struct NewFile {
  std::string path;
  std::string contents;
};

// Replaces the contents of two files of one folder (CHECK), each atomically and durably. If one
// cannot be written, both have their old contents, or do not exist if they did not before; only a
// crash between the two renames leaves a new `small` beside the old `large`. If the last sync of
// the folder fails, the new contents are in place. Keeps the old contents of `small` in memory
// meanwhile. Errors as WriteFileAtomically and ReadWholeFile. Blocks on the disk.
absl::Status WriteFilePair(FileSystem& files, const NewFile& large, const NewFile& small);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_FILE_PAIR_H_
