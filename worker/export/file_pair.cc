#include "worker/export/file_pair.h"

#include <unistd.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

// Returns the contents of a file, or nullopt if it does not exist.
absl::StatusOr<std::optional<std::string>> ReadIfExists(FileSystem& files,
                                                        const std::string& path) {
  absl::StatusOr<std::string> contents = ReadWholeFile(files, path);
  if (contents.ok()) return *std::move(contents);
  if (absl::IsNotFound(contents.status())) return std::nullopt;
  return contents.status();
}

// A complete copy of a new file under a temporary name beside it. The destructor removes what is
// left of it.
class StagedFile {
 public:
  StagedFile(FileSystem& files, const NewFile& file)
      : files_(files),
        path_(file.path),
        temporary_(JoinPath(FolderOf(file.path),
                            absl::StrCat(".tmp-new-", FileNameOf(file.path), "-", getpid()))) {}
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;
  ~StagedFile() { files_.RemoveFile(temporary_).IgnoreError(); }

  absl::Status Write(const std::string& contents) {
    return WriteFileAtomically(files_, temporary_, contents);
  }
  absl::Status Publish() { return files_.Rename(temporary_, path_); }

 private:
  FileSystem& files_;
  const std::string path_;
  const std::string temporary_;
};

}  // namespace

absl::Status WriteFilePair(FileSystem& files, const NewFile& large, const NewFile& small) {
  CHECK_EQ(FolderOf(large.path), FolderOf(small.path));
  CHECK_NE(large.path, small.path);
  PP_ASSIGN_OR_RETURN(const std::optional<std::string> old, ReadIfExists(files, small.path));
  StagedFile staged_large(files, large);
  StagedFile staged_small(files, small);
  PP_RETURN_IF_ERROR(staged_large.Write(large.contents));
  PP_RETURN_IF_ERROR(staged_small.Write(small.contents));
  PP_RETURN_IF_ERROR(staged_small.Publish());
  if (absl::Status published = staged_large.Publish(); !published.ok()) {
    const absl::Status undone = old.has_value() ? WriteFileAtomically(files, small.path, *old)
                                                : files.RemoveFile(small.path);
    LOG_IF(ERROR, !undone.ok()) << (old.has_value() ? "could not restore the old "
                                                    : "could not remove the new ")
                                << small.path << ": " << undone;
    return published;
  }
  return files.SyncDirectory(FolderOf(large.path));
}

}  // namespace pushpull
