// Names of files and folders in a train_dir that only the checkpoint code needs. Thread-safe.
#ifndef PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_PATHS_H_
#define PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_PATHS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

inline constexpr char kManifestFile[] = "MANIFEST.json";
inline constexpr char kHintFile[] = "checkpoint";
inline constexpr char kRunIdFile[] = "run_id";
// What a killed server leaves under these prefixes is removed at its next start (TrainDir::Sweep).
inline constexpr char kPendingPrefix[] = ".tmp-";
inline constexpr char kTrashPrefix[] = ".trash-";

// Returns the pending folder, "<directory>/.tmp-ckpt-00012000-e7" for step 12000 of epoch 7.
std::string PendingPath(const std::string& directory, uint64_t epoch, uint64_t step);
// Returns the epoch, 7, of the name ".tmp-ckpt-00012000-e7", and nullopt for any other name.
std::optional<uint64_t> ParsePendingEpoch(absl::string_view name);
// Returns a new name in `directory` for `path`, which is about to be removed. Every call returns a
// different name.
std::string TrashPath(const std::string& directory, absl::string_view path);
// Returns the step of a checkpoint that was renamed to a TrashPath: 12000 for the name
// ".trash-ckpt-00012000-<...>", and nullopt for any other name.
std::optional<uint64_t> ParseTrashedCheckpoint(absl::string_view name);
// Returns the key in a shard file's __metadata__ that describes a tensor of which the file holds
// only a part.
std::string PartKey(absl::string_view tensor);
// Returns 12000 for "ckpt-00012000", and nullopt for any name that CheckpointName does not produce.
std::optional<uint64_t> ParseCheckpointName(absl::string_view name);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_PATHS_H_
