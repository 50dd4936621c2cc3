#include "common/model/sharding.h"

#include <algorithm>
#include <bit>

#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr int kSmallChunks = 4;  // they have kChunkElements elements together
constexpr int64_t kSmallBegins[kSmallChunks] = {0, Sharding::kFirstChunkElements,
                                                2 * Sharding::kFirstChunkElements,
                                                4 * Sharding::kFirstChunkElements};

int64_t ChunkBegin(int chunk) {
  if (chunk < kSmallChunks) return kSmallBegins[chunk];
  return (chunk - kSmallChunks + 1) * Sharding::kChunkElements;
}

}  // namespace

int ChunkOf(int64_t element) {
  if (element >= Sharding::kChunkElements) {
    return static_cast<int>(element / Sharding::kChunkElements) + kSmallChunks - 1;
  }
  return std::bit_width(static_cast<uint64_t>(element / Sharding::kFirstChunkElements));
}

int NumChunks(int64_t elements) { return elements == 0 ? 1 : ChunkOf(elements - 1) + 1; }

ElementRange ChunkRange(int64_t elements, int chunk) {
  return {std::min(ChunkBegin(chunk), elements), std::min(ChunkBegin(chunk + 1), elements)};
}

Sharding::Sharding(int64_t total_elements, int tasks)
    : total_elements_(total_elements), tasks_(tasks) {
  CHECK_GE(total_elements, 0);
  CHECK_GE(tasks, 1);
  const int64_t pages = (total_elements + kPageElements - 1) / kPageElements;
  shard_elements_ = std::max<int64_t>(1, (pages + tasks - 1) / tasks) * kPageElements;
}

ElementRange Sharding::shard(int shard) const {
  return {std::min(shard * shard_elements_, total_elements_),
          std::min((shard + 1) * shard_elements_, total_elements_)};
}

ElementRange Sharding::chunk(int shard, int chunk) const {
  const ElementRange range = this->shard(shard);
  const ElementRange within = ChunkRange(range.size(), chunk);
  return {range.begin + within.begin, range.begin + within.end};
}

}  // namespace pushpull
