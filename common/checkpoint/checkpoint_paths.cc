// Tested by tests/common/checkpoint/checkpoint_test.cc.
#include "common/checkpoint/checkpoint_paths.h"

#include <atomic>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/base/file_system.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/train_dir.h"

namespace pushpull {

std::string PendingPath(const std::string& directory, uint64_t epoch, uint64_t step) {
  return JoinPath(directory, absl::StrCat(kPendingPrefix, CheckpointName(step), "-e", epoch));
}

std::optional<uint64_t> ParsePendingEpoch(absl::string_view name) {
  const size_t end_of_step = name.rfind("-e");
  uint64_t epoch = 0;
  if (end_of_step == absl::string_view::npos || !absl::StartsWith(name, kPendingPrefix) ||
      !absl::SimpleAtoi(name.substr(end_of_step + 2), &epoch)) {
    return std::nullopt;
  }
  return epoch;
}

std::string TrashPath(const std::string& directory, absl::string_view path) {
  static std::atomic<uint64_t> counter{0};
  // Random, because in a container the process number is the same after each start.
  static const std::string* const process = new std::string(NewRunId().substr(0, 16));
  return JoinPath(directory, absl::StrCat(kTrashPrefix, FileNameOf(path), "-", *process, "-",
                                          counter.fetch_add(1)));
}

std::optional<uint64_t> ParseTrashedCheckpoint(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kTrashPrefix)) return std::nullopt;
  return ParseCheckpointName(name.substr(0, name.find('-', name.find('-') + 1)));
}

std::string PartKey(absl::string_view tensor) { return absl::StrCat("part/", tensor); }

std::optional<uint64_t> ParseCheckpointName(absl::string_view name) {
  uint64_t step = 0;
  if (!absl::ConsumePrefix(&name, "ckpt-") || !absl::SimpleAtoi(name, &step)) return std::nullopt;
  // Accept only the spelling that CheckpointName writes: no sign, no blank, at least eight digits.
  if (CheckpointName(step) != absl::StrCat("ckpt-", name)) return std::nullopt;
  return step;
}

}  // namespace pushpull
