#include "common/base/output_folder.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/base/temporary_file.h"

namespace pushpull {
namespace {

// Returns the path without slashes at its end; empty for the root.
std::string WithoutSlashes(std::string path) {
  path.resize(path.find_last_not_of('/') + 1);
  return path;
}

}  // namespace

int CountMissingFolders(FileSystem& files, const std::string& path) {
  int missing = 0;
  std::string folder = WithoutSlashes(path);
  while (!folder.empty() && absl::IsNotFound(files.GetInfo(folder).status())) {
    ++missing;
    folder = WithoutSlashes(FolderOf(folder));
  }
  return missing;
}

void RemoveEmptyFolders(FileSystem& files, const std::string& path, int count) {
  std::string folder = WithoutSlashes(path);
  for (int i = 0; i < count; ++i) {
    const absl::Status removed = files.RemoveDirectory(folder);
    if (!removed.ok() && !absl::IsNotFound(removed)) return;
    folder = WithoutSlashes(FolderOf(folder));
  }
}

OutputFolder::OutputFolder(FileSystem* files, const std::string& path)
    : files_(files), path_(path), num_made_(CountMissingFolders(*files, path)) {}

absl::StatusOr<std::unique_ptr<OutputFolder>> OutputFolder::Make(FileSystem* files,
                                                                 const std::string& path) {
  std::unique_ptr<OutputFolder> folder(new OutputFolder(files, path));
  PP_RETURN_IF_ERROR(MakeDirectories(*files, path));
  return folder;
}

OutputFolder::~OutputFolder() { RemoveEmptyFolders(*files_, path_, num_made_); }

absl::Status CheckTakesFiles(FileSystem* files, const std::string& path) {
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFolder> folder, OutputFolder::Make(files, path));
  PP_ASSIGN_OR_RETURN(const TemporaryFile attempt,
                      CreateTemporaryFile(*files, JoinPath(path, "attempt")));
  const absl::Status closed = attempt.file->Close();
  PP_RETURN_IF_ERROR(files->RemoveFile(attempt.path));
  return closed;
}

}  // namespace pushpull
