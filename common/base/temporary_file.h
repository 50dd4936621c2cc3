// Creates the file that takes the place of another one once it is complete.
//
// Thread rule: thread-safe functions.
#ifndef PUSHPULL_COMMON_BASE_TEMPORARY_FILE_H_
#define PUSHPULL_COMMON_BASE_TEMPORARY_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"

namespace pushpull {

struct TemporaryFile {
  std::string path;
  std::unique_ptr<WritableFile> file;
};

// Creates an empty file .tmp-<name>-<process>-<number> in the folder of `path`, where <name> is the
// last part of `path`. No two calls create the same file, not even in two processes. The caller
// writes, syncs and closes it and renames it to `path`, or removes it; a killed process leaves it
// behind. Blocks on the disk. Errors of the file system.
absl::StatusOr<TemporaryFile> CreateTemporaryFile(FileSystem& files, const std::string& path);

// Returns whether `name` is one that CreateTemporaryFile makes for a file called `file_name`, in
// any process.
bool IsTemporaryFileOf(absl::string_view file_name, absl::string_view name);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_TEMPORARY_FILE_H_
