// VersionAhead keeps track of a version that is made ahead: chunk by chunk, before its step is
// decided, from the contributions that the step will probably have. When the step is decided, it
// tells which chunks are valid and which have to be made again.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_VERSION_AHEAD_H_
#define PUSHPULL_PS_SERVER_RUNTIME_VERSION_AHEAD_H_

#include <cstdint>
#include <vector>

#include "ps_server/core/shard_events.h"
#include "ps_server/store/variable_store.h"

namespace pushpull {

// Not thread-safe.
class VersionAhead {
 public:
  VersionAhead(const VariableStore::ApplyBuffers& buffers, int num_chunks)
      : buffers_(buffers), made_from_(num_chunks) {}

  const VariableStore::ApplyBuffers& buffers() const { return buffers_; }

  // Notes that order.chunk is made from order.contributions. Keeps a reference to their bytes:
  // ChunksToMake compares addresses, and memory that is still in use cannot be reused for
  // other bytes.
  void NoteMade(const shard_action::StoreApplyAhead& order);

  // Returns the chunks that are not made from exactly these contributions, in ascending order.
  // Contributions of 0 samples do not count.
  std::vector<int> ChunksToMake(const std::vector<StagedContribution>& contributions) const;

 private:
  const VariableStore::ApplyBuffers buffers_;
  std::vector<std::vector<StagedChunk>> made_from_;  // by chunk; empty: not made
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_VERSION_AHEAD_H_
