#include "kernels/cuda/vendor/choice_file.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr int kLockAttempts = 200;
constexpr absl::Duration kLockPeriod = absl::Milliseconds(10);

}  // namespace

ChoiceFile::ChoiceFile(FileSystem* files, std::string path, std::string conditions)
    : files_(*files), path_(std::move(path)), conditions_(std::move(conditions)) {
  if (!path_.empty()) lines_ = Read();
}

ChoiceFile::Lines ChoiceFile::Read() const {
  Lines lines;
  const absl::StatusOr<std::string> text = ReadWholeFile(files_, path_);
  if (!text.ok()) {
    if (!absl::IsNotFound(text.status())) {
      LOG(WARNING) << "the fastest implementations are measured again: " << text.status().message();
    }
    return lines;
  }
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, '\t');
    if (parts.size() != 3 || parts[2].empty()) {
      LOG(WARNING) << path_
                   << " has a line that is no choice, expected three parts between tabs: " << line;
      continue;
    }
    lines[absl::StrCat(parts[0], "\t", parts[1])] = std::string(parts[2]);
  }
  return lines;
}

std::optional<std::string> ChoiceFile::Find(const std::string& key) const {
  const auto found = lines_.find(absl::StrCat(conditions_, "\t", key));
  if (found == lines_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> ChoiceFile::FindAgain(const std::string& key) {
  if (!path_.empty()) lines_.merge(Read());
  return Find(key);
}

absl::Status ChoiceFile::AddToFile(const std::string& name, std::string* choice) {
  if (path_.empty()) {
    return absl::FailedPreconditionError(
        "no folder is known for them; set XDG_CACHE_HOME or HOME to one");
  }
  PP_RETURN_IF_ERROR(MakeDirectories(files_, FolderOf(path_)));
  absl::StatusOr<std::unique_ptr<FileLock>> lock = files_.Lock(path_ + ".lock");
  // Others hold the lock for as long as it takes to write a small file.
  for (int i = 0; i < kLockAttempts && absl::IsUnavailable(lock.status()); ++i) {
    absl::SleepFor(kLockPeriod);
    lock = files_.Lock(path_ + ".lock");
  }
  PP_RETURN_IF_ERROR(lock.status());
  Lines newest = Read();
  const auto [place, added] = newest.emplace(name, *choice);
  *choice = place->second;
  newest.insert(lines_.begin(), lines_.end());
  lines_ = std::move(newest);
  if (!added) return absl::OkStatus();
  std::string text;
  for (const auto& [conditions_and_key, value] : lines_) {
    absl::StrAppend(&text, conditions_and_key, "\t", value, "\n");
  }
  return WriteFileAtomically(files_, path_, text);
}

std::string ChoiceFile::Add(const std::string& key, const std::string& choice) {
  const std::string name = absl::StrCat(conditions_, "\t", key);
  std::string holds = choice;
  const absl::Status kept = AddToFile(name, &holds);
  if (!kept.ok() && !warned_) {
    warned_ = true;
    LOG(WARNING) << "the fastest implementations are not kept, so that a clone that is "
                    "started again may compute other bits: "
                 << kept.message();
  }
  lines_[name] = holds;
  return holds;
}

}  // namespace pushpull
