#include "worker/data/image_folder_source.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "worker/data/check_examples.h"
#include "worker/data/image_codec.h"
#include "worker/data/image_paths.h"
#include "worker/data/image_sources.h"
#include "worker/data/read_error.h"

namespace pushpull {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxFileBytes = int64_t{1} << 28;

bool IsNumber(const std::string& name) {
  return std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isdigit(c); });
}

// Compares names of digits by value, for any number of digits. Equal values (01 and 1) are compared
// bytewise.
bool NumberLess(const std::string& a, const std::string& b) {
  const auto digits = [](const std::string& s) {
    return s.substr(std::min(s.find_first_not_of('0'), s.size()));
  };
  const std::string x = digits(a);
  const std::string y = digits(b);
  if (x.size() != y.size()) return x.size() < y.size();
  return x != y ? x < y : a < b;
}

// Returns whether the entry is a folder or a link to one. A link that leads nowhere is none.
absl::StatusOr<bool> IsFolder(const fs::directory_entry& entry) {
  std::error_code error;
  const bool is_folder = entry.is_directory(error);
  if (!error || error == std::errc::no_such_file_or_directory ||
      error == std::errc::not_a_directory || error == std::errc::too_many_symbolic_link_levels) {
    return is_folder;
  }
  return ReadError(entry.path().string(), error.value());
}

// Calls visit(is_folder, name) for each entry of the folder in no particular order. Skips names
// that begin with a dot.
template <typename Visit>
absl::Status ForEachEntry(const std::string& path, Visit visit) {
  std::error_code error;
  fs::directory_iterator it(path, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::StartsWith(name, ".")) continue;
    PP_ASSIGN_OR_RETURN(const bool is_folder, IsFolder(*it));
    visit(is_folder, name);
  }
  return error ? ReadError(path, error.value()) : absl::OkStatus();
}

absl::Status ReadFile(const std::string& path, std::string* bytes) {
  PP_ASSIGN_OR_RETURN(const FileToRead file, OpenToRead(path));
  constexpr size_t kStep = 1 << 16;
  bytes->clear();
  size_t got = 0;
  do {
    const size_t size = bytes->size();
    bytes->resize(size + kStep);
    got = std::fread(bytes->data() + size, 1, kStep, file.get());
    bytes->resize(size + got);
    if (static_cast<int64_t>(bytes->size()) > kMaxFileBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": larger than the ", kMaxFileBytes, " bytes accepted for one image"));
    }
  } while (got == kStep);
  return std::ferror(file.get()) ? ReadError(path, errno) : absl::OkStatus();
}

}  // namespace

absl::Status ImageFolderSource::ListClassFolders(const std::string& path) {
  path_ = path;
  PP_RETURN_IF_ERROR(ForEachEntry(path, [&](bool is_folder, const std::string& name) {
    if (is_folder) {
      classes_.push_back(name);
    } else {
      ++num_ignored_;
    }
  }));
  if (std::all_of(classes_.begin(), classes_.end(), IsNumber)) {
    std::sort(classes_.begin(), classes_.end(), NumberLess);
  } else {
    std::sort(classes_.begin(), classes_.end());
  }
  return absl::OkStatus();
}

absl::Status ImageFolderSource::List(const std::string& path) {
  PP_RETURN_IF_ERROR(ListClassFolders(path));
  for (size_t label = 0; label < classes_.size(); ++label) {
    const std::string folder = absl::StrCat(path, "/", classes_[label]);
    std::vector<std::string> names;
    PP_RETURN_IF_ERROR(ForEachEntry(folder, [&](bool is_folder, const std::string& name) {
      if (HasImageExtension(name) && !is_folder) {
        names.push_back(name);
      } else {
        ++num_ignored_;
      }
    }));
    if (names.empty()) LOG(WARNING) << folder << ": no image (png, jpg, jpeg, pgm) of this class";
    std::sort(names.begin(), names.end());
    for (std::string& name : names) {
      files_.push_back({static_cast<int32_t>(label), std::move(name)});
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<ImageSource>> ImageFolderSource::Open(const std::string& path,
                                                                     int num_classes) {
  auto source = std::unique_ptr<ImageFolderSource>(new ImageFolderSource());
  PP_RETURN_IF_ERROR(source->List(path));
  const int found = source->num_classes();
  if (found == 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no class folders; expected ", path,
                                                   "/<class>/*.png, .jpg, .jpeg or .pgm"));
  }
  if (found != num_classes) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", found, " class folders (", source->classes_.front(), " ... ",
        source->classes_.back(), "), the model has num_classes: ", num_classes,
        "; every class needs its folder, even an empty one, since labels count the folders"));
  }
  if (source->files_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no image (png, jpg, jpeg, pgm) in the ",
                                                   found, " class folders, ", source->num_ignored_,
                                                   " other files ignored"));
  }
  if (source->num_ignored_ > 0) {
    LOG(WARNING) << path << ": " << source->num_ignored_
                 << " files and folders that are not png, jpg, jpeg or pgm are ignored";
  }
  return source;
}

absl::StatusOr<std::vector<std::string>> ImageFolderSource::ListClasses(const std::string& path) {
  ImageFolderSource source;
  PP_RETURN_IF_ERROR(source.ListClassFolders(path));
  return std::move(source.classes_);
}

absl::StatusOr<ImageFolderSource::Listing> ImageFolderSource::ListImages(const std::string& path) {
  ImageFolderSource source;
  PP_RETURN_IF_ERROR(source.List(path));
  if (source.files_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": no image; expected ", path, "/<class>/*.png, .jpg, .jpeg or .pgm"));
  }
  Listing listing;
  for (const File& file : source.files_) {
    listing.images.push_back({source.FilePath(file), source.classes_[file.label]});
  }
  listing.classes = std::move(source.classes_);
  return listing;
}

std::string ImageFolderSource::FilePath(const File& file) const {
  return absl::StrCat(path_, "/", classes_[file.label], "/", file.name);
}

std::string ImageFolderSource::describe() const {
  return absl::StrCat("image folder ", path_, ": ", size(), " images, ", num_classes(),
                      " classes, ", num_ignored_, " other files ignored");
}

std::string ImageFolderSource::identity() const {
  uint32_t crc = 0;
  for (const File& file : files_) {
    const std::string text = absl::StrCat(file.label, "/", file.name);
    crc = ExtendCrc32c(crc, text.c_str(), text.size() + 1);
  }
  return absl::StrCat(describe(), "\nlabels and names ", crc);
}

absl::Status ImageFolderSource::Get(int64_t index, Example* example) const {
  PP_RETURN_IF_ERROR(GetEncoded(index, example));
  return DecodeIfJpeg(&example->image);
}

absl::Status ImageFolderSource::GetEncoded(int64_t index, Example* example) const {
  CHECK_GE(index, 0);
  CHECK_LT(index, size());
  const File& file = files_[index];
  const std::string path = FilePath(file);
  std::string bytes;
  PP_RETURN_IF_ERROR(ReadFile(path, &bytes));
  PP_RETURN_IF_ERROR(DecodeAllButJpeg(std::move(bytes), path, &example->image));
  example->label = file.label;
  example->boxes.clear();
  return absl::OkStatus();
}

absl::Status ImageFolderSource::Check(ThreadPool* pool, StoppedFn stopped) const {
  return CheckExamples(*this, path_, pool, stopped,
                       [this](int64_t i, Example* example) { return Get(i, example); });
}

SourceOrError OpenSource(const config::ImageFolderInputReader& reader,
                         const SourceOptions& options) {
  return ImageFolderSource::Open(options.Path(reader.path()), options.num_classes);
}

}  // namespace pushpull
