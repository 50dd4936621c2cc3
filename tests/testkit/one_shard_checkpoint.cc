#include "tests/testkit/one_shard_checkpoint.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_writer.h"

namespace pushpull {

absl::Status PublishOneShard(FileSystem& files, const std::string& directory,
                             const VariableLayout& layout, CheckpointManifest manifest,
                             const std::vector<float>& weights, const std::vector<float>& ema) {
  manifest.has_ema = !ema.empty();
  DescribeLayout(layout, &manifest);
  ShardSnapshot snapshot;
  snapshot.range = {0, layout.total_elements()};
  snapshot.weights = weights.data();
  if (manifest.has_ema) snapshot.ema = ema.data();
  PP_ASSIGN_OR_RETURN(CheckpointFile file, WriteShardFile(files, directory, manifest.epoch,
                                                          manifest.step, layout, snapshot));
  manifest.files.push_back(std::move(file));
  return PublishCheckpoint(files, directory, manifest);
}

}  // namespace pushpull
