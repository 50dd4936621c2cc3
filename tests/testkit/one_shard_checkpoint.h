// Writes checkpoints of a single shard from values in memory.
#ifndef PUSHPULL_TESTS_TESTKIT_ONE_SHARD_CHECKPOINT_H_
#define PUSHPULL_TESTS_TESTKIT_ONE_SHARD_CHECKPOINT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "common/base/file_system.h"
#include "common/checkpoint/manifest.h"
#include "common/model/variable_layout.h"

namespace pushpull {

// Publishes the checkpoint of `manifest`, whose variables, files and has_ema are filled in, into
// `directory`. `weights` and `ema` hold the values of all variables of the layout in its order;
// without moving averages `ema` is empty.
absl::Status PublishOneShard(FileSystem& files, const std::string& directory,
                             const VariableLayout& layout, CheckpointManifest manifest,
                             const std::vector<float>& weights, const std::vector<float>& ema = {});

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_ONE_SHARD_CHECKPOINT_H_
