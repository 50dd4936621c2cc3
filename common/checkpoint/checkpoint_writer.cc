// Tested by tests/common/checkpoint/checkpoint_test.cc.
// Tested by tests/common/checkpoint/checkpoint_faults_test.cc.
#include "common/checkpoint/checkpoint_writer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"

#include "common/base/crc32c.h"
#include "common/base/sha256.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_paths.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/train_dir.h"

namespace pushpull {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

// Collects small tensors into large writes and computes the SHA-256 of everything written.
class HashingWriter {
 public:
  explicit HashingWriter(WritableFile* file) : file_(file) {}

  absl::Status Append(absl::string_view data) {
    digest_.Update(data.data(), data.size());
    size_bytes_ += static_cast<int64_t>(data.size());
    if (buffer_.size() + data.size() > kBufferBytes) PP_RETURN_IF_ERROR(Flush());
    if (data.size() > kBufferBytes) return file_->Append(data);
    buffer_.append(data.data(), data.size());
    return absl::OkStatus();
  }
  absl::Status Flush() {
    if (buffer_.empty()) return absl::OkStatus();
    const absl::Status status = file_->Append(buffer_);
    buffer_.clear();
    return status;
  }
  int64_t size_bytes() const { return size_bytes_; }
  std::string FinishHex() { return digest_.FinishHex(); }

 private:
  WritableFile* file_;
  Sha256 digest_;
  std::string buffer_;
  int64_t size_bytes_ = 0;
};

struct ShardTensors {
  SafetensorsHeader header;
  absl::flat_hash_map<std::string, const float*> values;
};

ShardTensors CollectTensors(const VariableLayout& layout, const ShardSnapshot& snapshot) {
  ShardTensors result;
  for (int64_t i = 0; i < layout.num_variables(); ++i) {
    const VariableSpec& variable = layout.variables()[i];
    const int64_t start = layout.offset(i);
    const int64_t begin = std::max(snapshot.range.begin, start);
    const int64_t end = std::min(snapshot.range.end, start + layout.num_elements(i));
    if (begin >= end) continue;
    const bool whole = end - begin == layout.num_elements(i);
    const auto add = [&](std::string name, const float* vector) {
      SafetensorsTensor tensor;
      tensor.shape = whole ? variable.shape : std::vector<int64_t>{end - begin};
      if (!whole) {
        result.header.metadata[PartKey(name)] =
            absl::StrCat("{\"offset\":", begin - start, ",\"shape\":[",
                         absl::StrJoin(variable.shape, ","), "]}");
      }
      result.values[name] = vector + (begin - snapshot.range.begin);
      tensor.name = std::move(name);
      result.header.tensors.push_back(std::move(tensor));
    };
    add(variable.name, snapshot.weights);
    if (variable.kind != VariableKind::kTrainable) continue;
    for (const ShardSnapshot::Slot& slot : snapshot.slots) {
      add(absl::StrCat(variable.name, "/", slot.name), slot.values);
    }
    if (snapshot.ema != nullptr) add(absl::StrCat(variable.name, "/", kEmaSuffix), snapshot.ema);
  }
  return result;
}

absl::StatusOr<CheckpointFile> WriteTensors(FileSystem& files, const std::string& path,
                                            ShardTensors tensors) {
  PP_ASSIGN_OR_RETURN(const std::string header, EncodeSafetensorsHeader(&tensors.header));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file,
                      files.OpenForWrite(path, FileSystem::WriteMode::kCreateNew));
  HashingWriter writer(file.get());
  PP_RETURN_IF_ERROR(writer.Append(header));
  CheckpointFile result;
  for (const SafetensorsTensor& tensor : tensors.header.tensors) {
    const absl::string_view bytes(reinterpret_cast<const char*>(tensors.values.at(tensor.name)),
                                  tensor.size_bytes());
    result.tensors.push_back({tensor.name, Crc32c(bytes)});
    PP_RETURN_IF_ERROR(writer.Append(bytes));
  }
  PP_RETURN_IF_ERROR(writer.Flush());
  PP_RETURN_IF_ERROR(file->Sync());
  PP_RETURN_IF_ERROR(file->Close());
  result.size_bytes = writer.size_bytes();
  result.sha256 = writer.FinishHex();
  return result;
}

// Checks that the pending folder holds the files that the manifest lists, and removes everything
// else from it, for example parts that a timed-out call left.
absl::Status TidyPending(FileSystem& files, const std::string& pending,
                         const CheckpointManifest& manifest) {
  for (const CheckpointFile& file : manifest.files) {
    const std::string path = JoinPath(pending, file.name);
    const absl::StatusOr<FileInfo> info = files.GetInfo(path);
    if (IsReadFailure(info.status())) return info.status();
    if (!info.ok() || info->is_directory || info->size_bytes != file.size_bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": expected a file of ", file.size_bytes, " bytes, got ",
                       info.ok() ? absl::StrCat(info->size_bytes, " bytes")
                                 : std::string(info.status().message())));
    }
  }
  PP_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(pending));
  for (const std::string& name : names) {
    const bool listed = std::any_of(manifest.files.begin(), manifest.files.end(),
                                    [&](const CheckpointFile& file) { return file.name == name; });
    if (!listed) PP_RETURN_IF_ERROR(RemoveRecursively(files, JoinPath(pending, name)));
  }
  return absl::OkStatus();
}

absl::Status WriteManifest(FileSystem& files, const std::string& pending,
                           const CheckpointManifest& manifest) {
  PP_ASSIGN_OR_RETURN(
      const std::unique_ptr<WritableFile> file,
      files.OpenForWrite(JoinPath(pending, kManifestFile), FileSystem::WriteMode::kCreateNew));
  PP_RETURN_IF_ERROR(file->Append(SerializeManifest(manifest)));
  PP_RETURN_IF_ERROR(file->Sync());
  PP_RETURN_IF_ERROR(file->Close());
  return files.SyncDirectory(pending);
}

// Gives the pending folder its final name, durably; on an error it restores the old names. An
// earlier checkpoint of that name ends up under the pending name or is removed.
absl::Status Commit(FileSystem& files, const std::string& directory, const std::string& pending,
                    const std::string& final_path) {
  absl::Status renamed = files.Rename(pending, final_path);
  if (renamed.ok()) {
    const absl::Status synced = files.SyncDirectory(directory);
    // The rename may not survive a power cut, so undo it before anybody relies on it.
    if (!synced.ok()) files.Rename(final_path, pending).IgnoreError();
    return synced;
  }
  if (!absl::IsAlreadyExists(renamed)) return renamed;
  absl::Status exchanged = files.Exchange(pending, final_path);
  if (exchanged.ok()) {
    const absl::Status synced = files.SyncDirectory(directory);
    if (!synced.ok()) files.Exchange(pending, final_path).IgnoreError();
    return synced;
  }
  if (!absl::IsUnimplemented(exchanged)) return exchanged;
  // The file system cannot exchange names. Use two renames; after a power cut between them this
  // step has no checkpoint, and the one before it is the newest.
  const std::string aside = TrashPath(directory, final_path);
  PP_RETURN_IF_ERROR(files.Rename(final_path, aside));
  renamed = files.Rename(pending, final_path);
  if (renamed.ok()) renamed = files.SyncDirectory(directory);
  if (!renamed.ok()) {
    files.Rename(final_path, pending).IgnoreError();
    files.Rename(aside, final_path).IgnoreError();
    return renamed;
  }
  if (absl::Status removed = RemoveRecursively(files, aside); !removed.ok()) {
    LOG(WARNING) << "left for the sweep at the next start: " << removed.message();
  }
  return absl::OkStatus();
}

// A server that was stopped for a while (by a debugger, on a suspended machine) may find that
// another server has taken the folder over. It must not publish, because the run has gone on
// without it. If somebody has removed the folder and started another run there, that run's
// checkpoints would be mixed with these.
absl::Status CheckNotSuperseded(FileSystem& files, const std::string& directory,
                                const CheckpointManifest& manifest) {
  // A folder that has lost its run id, or a damaged one, does not tell that it has another run.
  const absl::StatusOr<std::optional<std::string>> run_id = ReadRunId(files, directory);
  if (run_id.ok() && run_id->has_value() && **run_id != manifest.run_id) {
    return absl::AbortedError(absl::StrCat(
        directory, " belongs to run ", **run_id, " now, and this server trains run ",
        manifest.run_id, ": the folder was made anew, so nothing more is published from here"));
  }
  PP_ASSIGN_OR_RETURN(const uint64_t stored, ReadEpoch(files, directory));
  if (stored <= manifest.epoch) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      directory, "/EPOCH holds ", stored, ", and this server is in epoch ", manifest.epoch,
      ": another server has taken the folder over, so nothing more is published from here"));
}

}  // namespace

std::string CheckpointName(uint64_t step) { return absl::StrFormat("ckpt-%08d", step); }

std::string ShardFileName(int shard, int tasks) {
  return absl::StrFormat("shard-%05d-of-%05d.safetensors", shard, tasks);
}

absl::StatusOr<CheckpointFile> WriteShardFile(FileSystem& files, const std::string& directory,
                                              uint64_t epoch, uint64_t step,
                                              const VariableLayout& layout,
                                              const ShardSnapshot& snapshot) {
  static std::atomic<uint64_t> counter{0};
  const std::string pending = PendingPath(directory, epoch, step);
  if (const absl::Status made = files.MakeDirectory(pending);
      !made.ok() && !absl::IsAlreadyExists(made)) {
    return made;
  }
  const std::string name = ShardFileName(snapshot.shard, snapshot.tasks);
  // Write under a unique name and rename the complete file: this call may be the repetition of one
  // that timed out and is still running.
  const std::string temporary =
      JoinPath(pending, absl::StrCat(".part-", name, "-", getpid(), "-", counter.fetch_add(1)));
  absl::StatusOr<CheckpointFile> file =
      WriteTensors(files, temporary, CollectTensors(layout, snapshot));
  if (file.ok()) {
    const absl::Status renamed = files.Rename(temporary, JoinPath(pending, name));
    if (!renamed.ok()) file = renamed;
  }
  if (!file.ok()) {
    files.RemoveFile(temporary).IgnoreError();
    return file.status();
  }
  file->name = name;
  return file;
}

absl::Status PublishCheckpoint(FileSystem& files, const std::string& directory,
                               const CheckpointManifest& manifest) {
  const std::string pending = PendingPath(directory, manifest.epoch, manifest.step);
  const std::string name = CheckpointName(manifest.step);
  absl::Status status = TidyPending(files, pending, manifest);
  if (status.ok()) status = WriteManifest(files, pending, manifest);
  if (status.ok()) status = CheckNotSuperseded(files, directory, manifest);
  if (status.ok()) status = Commit(files, directory, pending, JoinPath(directory, name));
  // By now the pending folder holds the failed attempt, or the checkpoint that was replaced.
  AbandonCheckpoint(files, directory, manifest.epoch, manifest.step);
  PP_RETURN_IF_ERROR(status);
  const absl::Status hinted =
      WriteFileAtomically(files, JoinPath(directory, kHintFile), absl::StrCat(name, "\n"));
  if (!hinted.ok())
    LOG(WARNING) << "the checkpoint is published, its hint is not: " << hinted.message();
  return absl::OkStatus();
}

void AbandonCheckpoint(FileSystem& files, const std::string& directory, uint64_t epoch,
                       uint64_t step) {
  const std::string pending = PendingPath(directory, epoch, step);
  if (absl::Status removed = RemoveRecursively(files, pending); !removed.ok()) {
    LOG(WARNING) << "left for the sweep at the next start: " << removed.message();
  }
}

}  // namespace pushpull
