// Expands the paths of images that a user names on the command line.
//
// Thread rule: functions without shared state.
#ifndef PUSHPULL_WORKER_DATA_IMAGE_PATHS_H_
#define PUSHPULL_WORKER_DATA_IMAGE_PATHS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// Returns whether the name ends with .png, .jpg, .jpeg or .pgm, in any case.
bool HasImageExtension(absl::string_view name);

// Returns the image files that the paths name, in order. Each path is a file with any name, a
// folder, or a glob ("photos/*.png"). A folder and a glob mean their files with an image's
// extension, sorted by name; folders within them and names that begin with a dot are left out. If a
// file has exactly the name of a path, the path means that file. Looks only at the local file
// system and opens no file.
// NOT_FOUND: a path does not exist, or a folder or glob has no image.
// Errors of a file or folder that cannot be looked at or listed: as in read_error.h.
absl::StatusOr<std::vector<std::string>> ExpandImagePaths(const std::vector<std::string>& paths);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_IMAGE_PATHS_H_
