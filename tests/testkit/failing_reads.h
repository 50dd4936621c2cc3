// A file system in which reads of chosen paths fail for a while.
#ifndef PUSHPULL_TESTS_TESTKIT_FAILING_READS_H_
#define PUSHPULL_TESTS_TESTKIT_FAILING_READS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

#include "common/base/file_system.h"
#include "common/base/status_macros.h"

namespace pushpull {

// Forwards all other operations to `files`, which must outlive it. Not thread-safe.
class FailingReads final : public FileSystem {
 public:
  enum class What { kOpen, kRead, kList, kGetInfo };

  explicit FailingReads(FileSystem* files) : files_(files) {}

  // Makes the next `count` operations of this kind on paths that end with `ending` fail. With an OK
  // `status` they succeed, after the action of AtFailure.
  void Fail(What what, std::string ending, absl::Status status, int count) {
    what_ = what;
    ending_ = std::move(ending);
    status_ = std::move(status);
    left_ = count;
    failed_ = 0;
  }
  int failed() const { return failed_; }
  // Sets an action that runs at each failure.
  void AtFailure(std::function<void()> action) { at_failure_ = std::move(action); }

  absl::StatusOr<std::unique_ptr<ReadableFile>> OpenForRead(const std::string& path) override {
    PP_RETURN_IF_ERROR(Next(What::kOpen, path));
    PP_ASSIGN_OR_RETURN(std::unique_ptr<ReadableFile> file, files_->OpenForRead(path));
    return std::make_unique<File>(this, path, std::move(file));
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    PP_RETURN_IF_ERROR(Next(What::kList, path));
    return files_->List(path);
  }
  absl::StatusOr<FileInfo> GetInfo(const std::string& path) override {
    PP_RETURN_IF_ERROR(Next(What::kGetInfo, path));
    return files_->GetInfo(path);
  }
  absl::StatusOr<std::string> FolderIdentity(const std::string& path) override {
    return files_->FolderIdentity(path);
  }
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path,
                                                             WriteMode mode) override {
    return files_->OpenForWrite(path, mode);
  }
  absl::Status MakeDirectory(const std::string& path) override {
    return files_->MakeDirectory(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return files_->SyncDirectory(path);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_->Rename(from, to);
  }
  absl::Status Exchange(const std::string& a, const std::string& b) override {
    return files_->Exchange(a, b);
  }
  absl::Status RemoveFile(const std::string& path) override { return files_->RemoveFile(path); }
  absl::Status RemoveDirectory(const std::string& path) override {
    return files_->RemoveDirectory(path);
  }
  absl::StatusOr<int64_t> FreeBytes(const std::string& folder) override {
    return files_->FreeBytes(folder);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    return files_->Lock(path);
  }

 private:
  class File final : public ReadableFile {
   public:
    File(FailingReads* owner, std::string path, std::unique_ptr<ReadableFile> file)
        : owner_(owner), path_(std::move(path)), file_(std::move(file)) {}
    int64_t size_bytes() const override { return file_->size_bytes(); }
    absl::Status ReadAt(int64_t offset, void* destination, int64_t size) const override {
      PP_RETURN_IF_ERROR(owner_->Next(What::kRead, path_));
      return file_->ReadAt(offset, destination, size);
    }
    absl::StatusOr<Payload> Map() const override { return file_->Map(); }

   private:
    FailingReads* const owner_;
    const std::string path_;
    const std::unique_ptr<ReadableFile> file_;
  };

  absl::Status Next(What what, const std::string& path) {
    if (what != what_ || left_ == 0 || !absl::EndsWith(path, ending_)) return absl::OkStatus();
    --left_;
    ++failed_;
    if (at_failure_) at_failure_();
    return status_;
  }

  FileSystem* const files_;
  What what_ = What::kOpen;
  std::string ending_;
  absl::Status status_;
  int left_ = 0;
  int failed_ = 0;
  std::function<void()> at_failure_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_FAILING_READS_H_
