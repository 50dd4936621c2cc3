#include "worker/data/file_glob.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "worker/data/read_error.h"

namespace pushpull {
namespace {

bool MeansAbsent(int error) { return error == ENOENT || error == ENOTDIR; }

// The first folder that glob(3) could not list. The callback gets no pointer of the caller's, so
// each thread has one of its own.
struct UnreadableFolder {
  std::string path;
  int error = 0;
};
thread_local UnreadableFolder unreadable_folder;

// Returns nonzero to end glob(3).
int OnGlobError(const char* path, int error) {
  if (MeansAbsent(error)) return 0;
  unreadable_folder = {path, error};
  return 1;
}

}  // namespace

absl::StatusOr<PathKind> KindOfPath(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    // A glob may be longer than a name can be.
    if (MeansAbsent(errno) || errno == ENAMETOOLONG) return PathKind::kAbsent;
    return ReadError(path, errno);
  }
  return S_ISDIR(info.st_mode) ? PathKind::kFolder : PathKind::kFile;
}

bool IsGlob(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

absl::StatusOr<std::vector<std::string>> MatchGlob(const std::string& pattern) {
  glob_t found{};
  unreadable_folder = {};
  const int rc = ::glob(pattern.c_str(), GLOB_NOSORT, OnGlobError, &found);
  const std::unique_ptr<glob_t, void (*)(glob_t*)> cleanup(&found, ::globfree);
  if (rc == GLOB_NOMATCH || (rc == 0 && found.gl_pathc == 0)) {
    return absl::NotFoundError(absl::StrCat("no file matches ", pattern));
  }
  if (rc != 0) {
    return ReadError(rc == GLOB_NOSPACE ? pattern : unreadable_folder.path,
                     rc == GLOB_NOSPACE ? ENOMEM : unreadable_folder.error);
  }
  std::vector<std::string> paths(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  // glob itself would sort by the locale.
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace pushpull
