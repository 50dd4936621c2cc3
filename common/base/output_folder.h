// A folder for output that does not stay behind if nothing gets into it.
//
// Not thread-safe. The calls block on the disk.
#ifndef PUSHPULL_COMMON_BASE_OUTPUT_FOLDER_H_
#define PUSHPULL_COMMON_BASE_OUTPUT_FOLDER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"

namespace pushpull {

// Returns how many of the folders at the end of the path do not exist.
int CountMissingFolders(FileSystem& files, const std::string& path);

// Removes the last `count` folders of the path, beginning with the last one. Stops at one that is
// not empty or cannot be removed.
void RemoveEmptyFolders(FileSystem& files, const std::string& path, int count);

class OutputFolder {
 public:
  // Creates the folder and its missing parents, as MakeDirectories does. `files` must outlive the
  // result. After an error nothing that was created stays.
  static absl::StatusOr<std::unique_ptr<OutputFolder>> Make(FileSystem* files,
                                                            const std::string& path);
  // Removes those of the created folders that are empty.
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

 private:
  OutputFolder(FileSystem* files, const std::string& path);

  FileSystem* const files_;
  const std::string path_;
  const int num_made_;
};

// Returns an error if no file can be created in the folder, or if it does not exist and cannot be
// created. Leaves nothing behind.
absl::Status CheckTakesFiles(FileSystem* files, const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_OUTPUT_FOLDER_H_
