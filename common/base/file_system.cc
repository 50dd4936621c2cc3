#include "common/base/file_system.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/base/temporary_file.h"

namespace pushpull {

std::string JoinPath(absl::string_view folder, absl::string_view name) {
  if (folder.empty()) return std::string(name);
  return absl::StrCat(folder, absl::EndsWith(folder, "/") ? "" : "/", name);
}

absl::StatusOr<std::string> ReadWholeFile(FileSystem& files, const std::string& path) {
  constexpr int64_t kMaxBytes = int64_t{4} << 30;
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<ReadableFile> file, files.OpenForRead(path));
  if (file->size_bytes() > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has ", file->size_bytes(), " bytes, expected at most ", kMaxBytes));
  }
  std::string contents(file->size_bytes(), '\0');
  PP_RETURN_IF_ERROR(file->ReadAt(0, contents.data(), file->size_bytes()));
  return contents;
}

std::string FolderOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return std::string(slash == 0 ? "/" : path.substr(0, slash));
}

std::string FileNameOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

absl::Status WriteFileAtomically(FileSystem& files, const std::string& path,
                                 absl::string_view contents) {
  PP_ASSIGN_OR_RETURN(TemporaryFile temporary, CreateTemporaryFile(files, path));
  const auto write = [&]() -> absl::Status {
    PP_RETURN_IF_ERROR(temporary.file->Append(contents));
    PP_RETURN_IF_ERROR(temporary.file->Sync());
    PP_RETURN_IF_ERROR(temporary.file->Close());
    return files.Rename(temporary.path, path);
  };
  if (absl::Status status = write(); !status.ok()) {
    files.RemoveFile(temporary.path).IgnoreError();
    return status;
  }
  return files.SyncDirectory(FolderOf(path));
}

namespace {

// Makes the name of a new folder survive a power cut. A folder that cannot be synced is still good
// for use, so a failure is only logged.
void SyncName(FileSystem& files, const std::string& folder) {
  const size_t end = folder.find_last_not_of('/') + 1;
  const absl::Status synced = files.SyncDirectory(FolderOf(folder.substr(0, end)));
  LOG_IF(WARNING, !synced.ok()) << folder << " may not survive a power cut: " << synced.message();
}

}  // namespace

absl::Status MakeDirectories(FileSystem& files, const std::string& path) {
  const auto make = [&files](const std::string& folder) -> absl::Status {
    const absl::Status made = files.MakeDirectory(folder);
    if (made.ok()) SyncName(files, folder);
    if (!absl::IsAlreadyExists(made)) return made;
    PP_ASSIGN_OR_RETURN(const FileInfo info, files.GetInfo(folder));
    // List follows a symbolic link, and GetInfo does not.
    if (info.is_directory || files.List(folder).ok()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat(folder, " is neither a folder nor a link to one"));
  };
  const absl::Status made = make(path);
  if (!absl::IsNotFound(made)) return made;
  const size_t last = path.find_last_not_of('/');
  const size_t slash = last == std::string::npos ? last : path.rfind('/', last);
  if (slash == std::string::npos || slash == 0) return made;
  PP_RETURN_IF_ERROR(MakeDirectories(files, path.substr(0, slash)));
  // This may still be NOT_FOUND although the parent exists, for example in /proc. Do not retry.
  return make(path.substr(0, last + 1));
}

absl::Status RemoveRecursively(FileSystem& files, const std::string& path) {
  const absl::StatusOr<FileInfo> info = files.GetInfo(path);
  if (absl::IsNotFound(info.status())) return absl::OkStatus();
  PP_RETURN_IF_ERROR(info.status());
  if (!info->is_directory) return files.RemoveFile(path);
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(path));
  for (const std::string& name : names) {
    PP_RETURN_IF_ERROR(RemoveRecursively(files, JoinPath(path, name)));
  }
  return files.RemoveDirectory(path);
}

}  // namespace pushpull
