#include "ps_server/runtime/version_ahead.h"

#include <algorithm>

namespace pushpull {

void VersionAhead::NoteMade(const shard_action::StoreApplyAhead& order) {
  made_from_[order.chunk] = order.contributions;
}

std::vector<int> VersionAhead::ChunksToMake(
    const std::vector<StagedContribution>& contributions) const {
  std::vector<const StagedContribution*> counting;
  for (const StagedContribution& contribution : contributions) {
    if (contribution.samples > 0) counting.push_back(&contribution);
  }
  std::vector<int> to_make;
  for (int chunk = 0; chunk < static_cast<int>(made_from_.size()); ++chunk) {
    const std::vector<StagedChunk>& made = made_from_[chunk];
    const auto same = [chunk](const StagedChunk& a, const StagedContribution* b) {
      return a.replica == b->replica && a.samples == b->samples &&
             a.chunk.payload.data == b->chunks[chunk].payload.data;
    };
    if (made.empty() ||
        !std::equal(made.begin(), made.end(), counting.begin(), counting.end(), same)) {
      to_make.push_back(chunk);
    }
  }
  return to_make;
}

}  // namespace pushpull
