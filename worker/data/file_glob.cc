// Tested by tests/worker/data/record_files_test.cc.
// Tested by tests/worker/data/image_paths_test.cc.
#include "worker/data/file_glob.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace pushpull {

PathKind KindOfPath(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return PathKind::kAbsent;
  return S_ISDIR(info.st_mode) ? PathKind::kFolder : PathKind::kFile;
}

bool IsGlob(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

absl::StatusOr<std::vector<std::string>> MatchGlob(const std::string& pattern) {
  glob_t found{};
  const int rc = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> cleanup(&found, ::globfree);
  if (rc == GLOB_NOMATCH || (rc == 0 && found.gl_pathc == 0)) {
    return absl::NotFoundError(absl::StrCat("no file matches ", pattern));
  }
  if (rc != 0) {
    return absl::InvalidArgumentError(absl::StrCat(pattern, ": the folder cannot be read"));
  }
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  // glob itself would sort by the locale.
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace pushpull
