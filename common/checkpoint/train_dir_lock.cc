#include "common/checkpoint/train_dir_lock.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/output_folder.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr char kLockFile[] = "LOCK";
// How often the folder may vanish between its creation and the lock.
constexpr int kAttempts = 5;

bool IsLockFile(absl::string_view name) {
  return name == kLockFile || absl::StartsWith(name, absl::StrCat(kLockFile, "."));
}

}  // namespace

TrainDirLock::TrainDirLock(FileSystem* files, std::string path, int task)
    : files_(files),
      path_(std::move(path)),
      task_(task),
      file_(JoinPath(path_, task == 0 ? kLockFile : absl::StrCat(kLockFile, ".", task))) {}

absl::StatusOr<std::unique_ptr<TrainDirLock>> TrainDirLock::Take(FileSystem* files,
                                                                 const std::string& path,
                                                                 int task) {
  std::unique_ptr<TrainDirLock> lock(new TrainDirLock(files, path, task));
  absl::Status acquired = lock->Acquire();
  // Another process whose start has failed removes the folder that it has created.
  for (int i = 1; i < kAttempts && absl::IsNotFound(acquired); ++i) acquired = lock->Acquire();
  PP_RETURN_IF_ERROR(acquired);
  return lock;
}

absl::Status TrainDirLock::Acquire() {
  // An earlier attempt may have created more of the folders.
  num_made_ = std::max(num_made_, CountMissingFolders(*files_, path_));
  PP_RETURN_IF_ERROR(MakeDirectories(*files_, path_));
  file_is_new_ = absl::IsNotFound(files_->GetInfo(file_).status());
  absl::StatusOr<std::unique_ptr<FileLock>> lock = files_->Lock(file_);
  if (absl::IsUnavailable(lock.status())) {
    return absl::UnavailableError(
        task_ == 0 ? absl::StrCat("another server works in ", path_, " (", lock.status().message(),
                                  "); stop it or choose another train_dir")
                   : absl::StrCat("ps task ", task_, " runs already in ", path_, " (",
                                  lock.status().message(),
                                  "); stop it, or give this process the index of another task"));
  }
  if (absl::IsPermissionDenied(lock.status())) {
    return Annotated(lock.status(),
                     absl::StrCat(lock.status().message(), "; if ", path_,
                                  " belongs to another user, start as that user, or choose another "
                                  "train_dir"));
  }
  PP_ASSIGN_OR_RETURN(lock_, std::move(lock));
  num_made_ = std::max(num_made_, CountMadeByOtherTasks());
  if (num_made_ > 0) NoteMade();
  return absl::OkStatus();
}

int TrainDirLock::CountMadeByOtherTasks() const {
  const absl::StatusOr<std::vector<std::string>> names = files_->List(path_);
  if (!names.ok() || !std::all_of(names->begin(), names->end(), IsLockFile)) return 0;
  int most = 0;
  for (const std::string& name : *names) {
    const absl::StatusOr<std::string> note = ReadWholeFile(*files_, JoinPath(path_, name));
    int made = 0;
    if (note.ok() && absl::SimpleAtoi(*note, &made)) most = std::max(most, made);
  }
  return most;
}

void TrainDirLock::NoteMade() const {
  // If the note is lost, an empty folder may remain, so no error counts.
  const auto file = files_->OpenForWrite(file_, FileSystem::WriteMode::kTruncate);
  if (!file.ok()) return;
  (*file)->Append(absl::StrCat(num_made_, "\n")).IgnoreError();
  (*file)->Close().IgnoreError();
}

TrainDirLock::~TrainDirLock() {
  // The lock is held meanwhile, so no other process works in the folder. One that opens the file
  // before it is removed gets a lock only once this one is released, sees that the file is gone,
  // and creates it anew (FileSystem::Lock).
  if (lock_ != nullptr && !RemoveUnusedFile()) return;
  RemoveEmptyFolders(*files_, path_, num_made_);
}

bool TrainDirLock::RemoveUnusedFile() {
  if (!file_is_new_) return false;
  const absl::StatusOr<std::vector<std::string>> names = files_->List(path_);
  return names.ok() && std::all_of(names->begin(), names->end(), IsLockFile) &&
         files_->RemoveFile(file_).ok();
}

}  // namespace pushpull
