// Tested by tests/ps_server/transport/grpc_ps_test.cc.
// Tested by tests/ps_server/transport/shared_chunks_test.cc.
#include "common/wire/ps_handler.h"

#include "common/model/sharding.h"

namespace pushpull {

Payload ChunkOfSnapshot(const PullSnapshot& snapshot, int chunk) {
  const ElementRange range =
      ChunkRange(static_cast<int64_t>(snapshot.payload.size_bytes / sizeof(float)), chunk);
  return {snapshot.payload.owner, snapshot.payload.data + range.begin * sizeof(float),
          range.size() * sizeof(float)};
}

}  // namespace pushpull
