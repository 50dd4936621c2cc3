// Writes and publishes checkpoints.
//
// Each shard writes its file into a pending folder; shards may be in different processes on the
// same file system. Then the coordinator adds the manifest, syncs everything and renames the
// folder. The rename is the only commit point.
//
// clang-format off
//   <dir>/.tmp-ckpt-00012000-e7/           the pending folder of step 12000, epoch 7
//       shard-00000-of-00002.safetensors
//       shard-00001-of-00002.safetensors
//       MANIFEST.json
//   <dir>/ckpt-00012000/                   the same folder after the rename
//   <dir>/checkpoint                       the newest name, for people; no program relies on it
// clang-format on
//
// Shard files are safetensors. They hold the variables by name, and for trainable variables also
// slots as <name>/<Slot> and the EMA as <name>/ExponentialMovingAverage. A tensor that lies within
// one shard has its true shape, so the file of a single shard suits any safetensors reader. If a
// tensor spans shards, each shard's file holds a part of it: a flat tensor of the elements in the
// shard, under the name of the whole tensor. The value of "part/<tensor>" in the file's
// __metadata__ is then
//   {"offset": first element of the part, "shape": [shape of the whole tensor]}
//
// All functions block on the disk. Thread-safe, except that two calls must not work on the same
// (epoch, step, shard) at the same time.
#ifndef PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_WRITER_H_
#define PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"
#include "common/checkpoint/manifest.h"
#include "common/model/sharding.h"
#include "common/model/variable_layout.h"

namespace pushpull {

inline constexpr absl::string_view kEmaSuffix = "ExponentialMovingAverage";

// One shard's part of the flat vectors. Each pointer points to element `range.begin` of its vector.
// The data must stay valid and unchanged during the call.
struct ShardSnapshot {
  struct Slot {
    std::string name;  // "Momentum"
    const float* values = nullptr;
  };
  int shard = 0;
  int tasks = 1;
  ElementRange range;
  const float* weights = nullptr;
  std::vector<Slot> slots;
  const float* ema = nullptr;  // null: no EMA
};

// Returns for example "ckpt-00012000".
std::string CheckpointName(uint64_t step);
// Returns for example "shard-00000-of-00001.safetensors".
std::string ShardFileName(int shard, int tasks);

// Writes and syncs the shard's file in the pending folder of (epoch, step), which it creates if
// needed. Returns the file's entry for the manifest. Safe to repeat.
absl::StatusOr<CheckpointFile> WriteShardFile(FileSystem& files, const std::string& directory,
                                              uint64_t epoch, uint64_t step,
                                              const VariableLayout& layout,
                                              const ShardSnapshot& snapshot);

// Writes the manifest beside the shard files that it lists and renames the folder. Replaces a
// checkpoint of the same step, atomically where the file system supports it. On an error the
// pending folder is removed and older checkpoints are unchanged; to try again, start from
// WriteShardFile. FAILED_PRECONDITION: a shard's file is missing or has the wrong size. ABORTED:
// another server has taken the directory over (EPOCH is newer).
absl::Status PublishCheckpoint(FileSystem& files, const std::string& directory,
                               const CheckpointManifest& manifest);

// Removes the pending folder, for use after a shard has failed. Failures are logged.
void AbandonCheckpoint(FileSystem& files, const std::string& directory, uint64_t epoch,
                       uint64_t step);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_CHECKPOINT_WRITER_H_
