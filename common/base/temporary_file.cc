// Tested by tests/common/base/file_system_test.cc.
#include "common/base/temporary_file.h"

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr int kMaxNameAttempts = 1000;
constexpr char kPrefix[] = ".tmp-";

}  // namespace

absl::StatusOr<TemporaryFile> CreateTemporaryFile(FileSystem& files, const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  const std::string prefix =
      JoinPath(FolderOf(path), absl::StrCat(kPrefix, FileNameOf(path), "-", getpid(), "-"));
  // A killed process may have left a file of that name: in a container, every start of a program
  // has the same process number. So names that are taken are skipped.
  for (int attempts = 1;; ++attempts) {
    std::string temporary = absl::StrCat(prefix, counter.fetch_add(1));
    absl::StatusOr<std::unique_ptr<WritableFile>> file =
        files.OpenForWrite(temporary, FileSystem::WriteMode::kCreateNew);
    if (absl::IsAlreadyExists(file.status()) && attempts < kMaxNameAttempts) continue;
    PP_RETURN_IF_ERROR(file.status());
    return TemporaryFile{std::move(temporary), *std::move(file)};
  }
}

bool IsTemporaryFileOf(absl::string_view file_name, absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kPrefix) || !absl::ConsumePrefix(&name, file_name) ||
      !absl::ConsumePrefix(&name, "-")) {
    return false;
  }
  const size_t dash = name.find('-');
  uint64_t number = 0;
  return dash != absl::string_view::npos && absl::SimpleAtoi(name.substr(0, dash), &number) &&
         absl::SimpleAtoi(name.substr(dash + 1), &number);
}

}  // namespace pushpull
