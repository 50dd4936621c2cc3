#include "common/checkpoint/train_dir.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "glog/logging.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "common/base/temporary_file.h"
#include "common/checkpoint/checkpoint_paths.h"
#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/retention.h"
#include "common/config/pipeline_config.h"

namespace pushpull {
namespace {

constexpr char kEpochFile[] = "EPOCH";
constexpr char kReplicasFile[] = "REPLICAS";
constexpr size_t kRunIdBytes = 16;

// Returns the content of an EPOCH or a REPLICAS file. With the checksum, a flipped bit cannot turn
// the number into another one: a smaller epoch would be used a second time.
std::string CheckedLine(uint64_t value) {
  const std::string number = absl::StrCat(value);
  return absl::StrFormat("%s %08x\n", number, Crc32c(number.data(), number.size()));
}

// The length of a number without a checksum. One bit turns the space of a checked line into a '0',
// and the line of 11 into 11060053794. Such a line has at least ten characters.
constexpr size_t kMaxBareDigits = 9;

// Returns the number in such a file. The newline proves that the file is whole. A number without a
// checksum was written by hand, or by an older server.
std::optional<uint64_t> ParseCheckedLine(const std::string& text) {
  absl::string_view line = text;
  const bool whole = absl::ConsumeSuffix(&line, "\n");
  const absl::string_view number = line.substr(0, line.find(' '));
  uint64_t value = 0;
  if (!whole || !absl::SimpleAtoi(number, &value)) return std::nullopt;
  const bool fits = line == number ? number.size() <= kMaxBareDigits : text == CheckedLine(value);
  if (!fits) return std::nullopt;
  return value;
}

// Returns whether `name` is the temporary name of something that a server writes in train_dir.
bool IsPendingOfServer(absl::string_view name) {
  static constexpr const char* kFiles[] = {kHintFile,     kRunIdFile,      kEpochFile,
                                           kReplicasFile, kPeerSecretFile, kTrainDirConfigName};
  return ParsePendingEpoch(name).has_value() ||
         std::any_of(std::begin(kFiles), std::end(kFiles),
                     [name](const char* file) { return IsTemporaryFileOf(file, name); });
}

bool IsTrash(absl::string_view name) { return absl::StartsWith(name, kTrashPrefix); }

}  // namespace

void TrainDir::Sweep() {
  RemoveLeftovers([](absl::string_view name) { return IsPendingOfServer(name) || IsTrash(name); });
}

void TrainDir::MakeRoom(uint64_t epoch) {
  const absl::Status removed = RemovePendingBefore(epoch);
  LOG_IF(WARNING, !removed.ok()) << "leftovers are not removed: " << removed.message();
  RemoveLeftovers(IsTrash);
}

void TrainDir::RemoveLeftovers(absl::FunctionRef<bool(absl::string_view)> is_leftover) {
  const absl::StatusOr<std::vector<std::string>> names = files_->List(path_);
  if (!names.ok()) {
    LOG(WARNING) << "leftovers are not removed: " << names.status().message();
    return;
  }
  const absl::StatusOr<std::vector<uint64_t>> pinned = ReadPinnedSteps(*files_, path_);
  for (const std::string& name : *names) {
    if (!is_leftover(name) || PutBackOrKeep(name, pinned)) continue;
    const absl::Status removed = RemoveRecursively(*files_, JoinPath(path_, name));
    LOG(INFO) << "removing " << JoinPath(path_, name) << ", left by an earlier process"
              << (removed.ok() ? "" : absl::StrCat(": ", removed.message()));
  }
}

bool TrainDir::PutBackOrKeep(const std::string& name,
                             const absl::StatusOr<std::vector<uint64_t>>& pinned) const {
  const std::optional<uint64_t> step = ParseTrashedCheckpoint(name);
  if (!step.has_value()) return false;
  const std::string trashed = JoinPath(path_, name);
  if (!pinned.ok()) {
    LOG(WARNING) << trashed
                 << " stays, because it may be the best checkpoint: " << pinned.status().message();
    return true;
  }
  if (std::find(pinned->begin(), pinned->end(), *step) == pinned->end()) return false;
  // The manifest is the first file that a removal takes away.
  const absl::Status manifest = files_->GetInfo(JoinPath(trashed, kManifestFile)).status();
  if (absl::IsNotFound(manifest)) return false;
  if (!manifest.ok()) {
    LOG(WARNING) << trashed << " stays, because an evaluator protects the checkpoint of step "
                 << *step << " and it is unknown whether this one is whole: " << manifest.message();
    return true;
  }
  const std::string checkpoint = JoinPath(path_, CheckpointName(*step));
  if (files_->GetInfo(checkpoint).ok()) return false;
  const absl::Status renamed = files_->Rename(trashed, checkpoint);
  LOG(WARNING) << checkpoint
               << " is protected by an evaluator, but an earlier process had begun to "
               << "delete it: "
               << (renamed.ok() ? "it is back"
                                : absl::StrCat("it stays as ", trashed, ": ", renamed.message()));
  return true;
}

absl::Status TrainDir::RemovePendingBefore(uint64_t epoch) {
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files_->List(path_));
  for (const std::string& name : names) {
    const std::optional<uint64_t> pending_epoch = ParsePendingEpoch(name);
    if (!pending_epoch.has_value() || *pending_epoch >= epoch) continue;
    // Renamed first, because a checkpoint must not be published when a part of it is removed.
    const std::string trash = TrashPath(path_, name);
    const absl::Status renamed = files_->Rename(JoinPath(path_, name), trash);
    if (absl::IsNotFound(renamed)) continue;  // It has been published, or removed, meanwhile.
    PP_RETURN_IF_ERROR(renamed);
    const absl::Status removed = RemoveRecursively(*files_, trash);
    LOG_IF(WARNING, !removed.ok()) << "left for the sweep: " << removed.message();
  }
  return absl::OkStatus();
}

TrainDir::TrainDir(FileSystem* files, std::string path, std::unique_ptr<TrainDirLock> lock)
    : files_(files), path_(std::move(path)), lock_(std::move(lock)) {}

absl::StatusOr<std::unique_ptr<TrainDir>> TrainDir::Open(FileSystem* files,
                                                         const std::string& path) {
  PP_ASSIGN_OR_RETURN(std::unique_ptr<TrainDirLock> lock,
                      TrainDirLock::Take(files, path, /*task=*/0));
  // The entry of the folder in its parent must survive a power cut, or nothing in the folder does.
  const size_t slash = path.rfind('/', path.find_last_not_of('/'));
  const std::string parent = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (absl::Status synced = files->SyncDirectory(parent); !synced.ok()) {
    LOG(WARNING) << path << " may not survive a power cut: " << synced.message();
  }
  return std::unique_ptr<TrainDir>(new TrainDir(files, path, std::move(lock)));
}

absl::Status TrainDir::WriteRunId(const std::string& run_id) {
  return WriteFileAtomically(*files_, JoinPath(path_, kRunIdFile), absl::StrCat(run_id, "\n"));
}

absl::StatusOr<std::optional<std::string>> ReadRunId(FileSystem& files,
                                                     const std::string& train_dir) {
  const std::string path = JoinPath(train_dir, kRunIdFile);
  absl::StatusOr<std::string> text = ReadWholeFile(files, path);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  PP_RETURN_IF_ERROR(text.status());
  const std::string run_id(absl::StripAsciiWhitespace(*text));
  const bool hex = std::all_of(run_id.begin(), run_id.end(), [](char c) {
    return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f');
  });
  if (run_id.size() != 2 * kRunIdBytes || !hex) {
    return absl::DataLossError(
        absl::StrCat(path,
                     ": expected 32 hex digits; restore it from \"run_id\" in a MANIFEST.json "
                     "of this run, or remove it"));
  }
  return std::optional<std::string>(run_id);
}

absl::StatusOr<uint64_t> ReadEpoch(FileSystem& files, const std::string& train_dir) {
  const std::string path = JoinPath(train_dir, kEpochFile);
  absl::StatusOr<std::string> text = ReadWholeFile(files, path);
  if (absl::IsNotFound(text.status())) return 0;
  PP_RETURN_IF_ERROR(text.status());
  const std::optional<uint64_t> epoch = ParseCheckedLine(*text);
  if (!epoch.has_value()) {
    return absl::DataLossError(
        absl::StrCat(path,
                     ": expected a number and its CRC32C; write a line with a number alone that is "
                     "larger than every \"epoch\" in the MANIFEST.json files of this directory and "
                     "than those in the servers' logs"));
  }
  return *epoch;
}

absl::StatusOr<std::optional<uint32_t>> TrainDir::ReadReplicas() const {
  const std::string path = JoinPath(path_, kReplicasFile);
  absl::StatusOr<std::string> text = ReadWholeFile(*files_, path);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  PP_RETURN_IF_ERROR(text.status());
  const std::optional<uint64_t> number = ParseCheckedLine(*text);
  if (!number.has_value() || *number == 0 || *number > UINT32_MAX) {
    return absl::DataLossError(absl::StrCat(
        path,
        ": expected a number of replicas and its CRC32C; write a line with the number alone, or "
        "remove the file, and the first clone that registers says the number"));
  }
  return static_cast<uint32_t>(*number);
}

absl::Status TrainDir::WriteReplicas(uint32_t num_replicas) {
  return WriteFileAtomically(*files_, JoinPath(path_, kReplicasFile), CheckedLine(num_replicas));
}

absl::Status TrainDir::WriteEpoch(uint64_t epoch) {
  return WriteFileAtomically(*files_, JoinPath(path_, kEpochFile), CheckedLine(epoch));
}

std::string NewRunId() {
  std::array<char, kRunIdBytes> bytes;
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (got > 0) filled += got;
  }
  return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
}

}  // namespace pushpull
