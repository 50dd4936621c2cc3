#include "worker/data/image_paths.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "worker/data/file_glob.h"
#include "worker/data/read_error.h"

namespace pushpull {
namespace {

absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path) {
  std::vector<std::string> entries;
  std::error_code error;
  std::filesystem::directory_iterator it(path, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (!absl::StartsWith(it->path().filename().string(), ".")) {
      entries.push_back(it->path().string());
    }
  }
  if (error) return ReadError(path, error.value());
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Returns those of the paths that are image files. `name` is the folder or glob that they come
// from.
absl::StatusOr<std::vector<std::string>> OnlyImages(const std::vector<std::string>& paths,
                                                    const std::string& name) {
  std::vector<std::string> images;
  for (const std::string& path : paths) {
    if (!HasImageExtension(path)) continue;
    PP_ASSIGN_OR_RETURN(const PathKind kind, KindOfPath(path));
    if (kind == PathKind::kFile) images.push_back(path);
  }
  if (images.empty()) {
    return absl::NotFoundError(
        absl::StrCat(name, ": no image; expected files that end with .png, .jpg, .jpeg or .pgm"));
  }
  return images;
}

absl::StatusOr<std::vector<std::string>> Expand(const std::string& path) {
  PP_ASSIGN_OR_RETURN(const PathKind kind, KindOfPath(path));
  switch (kind) {
    case PathKind::kFile:
      return std::vector<std::string>{path};
    case PathKind::kFolder: {
      PP_ASSIGN_OR_RETURN(const std::vector<std::string> entries, ListFolder(path));
      return OnlyImages(entries, path);
    }
    case PathKind::kAbsent:
      break;
  }
  if (!IsGlob(path)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no such file; expected an image, a folder of images or a glob"));
  }
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> matches, MatchGlob(path));
  return OnlyImages(matches, path);
}

}  // namespace

bool HasImageExtension(absl::string_view name) {
  return absl::EndsWithIgnoreCase(name, ".png") || absl::EndsWithIgnoreCase(name, ".jpg") ||
         absl::EndsWithIgnoreCase(name, ".jpeg") || absl::EndsWithIgnoreCase(name, ".pgm");
}

absl::StatusOr<std::vector<std::string>> ExpandImagePaths(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  for (const std::string& path : paths) {
    PP_ASSIGN_OR_RETURN(const std::vector<std::string> images, Expand(path));
    all.insert(all.end(), images.begin(), images.end());
  }
  return all;
}

}  // namespace pushpull
