// A version that is being made chunk by chunk before its step is decided, from the contributions
// that the step will probably have: what of it holds when the step is decided, and what has to be
// made again.
#ifndef PUSHPULL_PS_SERVER_SERVICE_VERSION_AHEAD_H_
#define PUSHPULL_PS_SERVER_SERVICE_VERSION_AHEAD_H_

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

  // The chunk is written, from these contributions. Keeps their bytes, so that no other bytes can
  // come to lie where they are.
  void NoteMade(const shard_action::StoreApplyAhead& order);

  // The chunks that are not made from exactly these contributions, in order.
  std::vector<int> ChunksToMake(const std::vector<StagedContribution>& contributions) const;

 private:
  const VariableStore::ApplyBuffers buffers_;
  std::vector<std::vector<StagedChunk>> made_from_;  // by chunk; empty: not made
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_VERSION_AHEAD_H_
