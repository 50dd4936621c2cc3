// The chunk exchanges of a server: at most one per slot, so that workers that come and go cost no
// more than those that stay.
#ifndef PUSHPULL_COMMON_RPC_SHARED_MEMORY_EXCHANGE_TABLE_H_
#define PUSHPULL_COMMON_RPC_SHARED_MEMORY_EXCHANGE_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "common/payload.h"
#include "common/rpc/shared_memory/chunk_exchange.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Thread-safe. Who may have an exchange is for the caller to decide; it lives until one is
// opened for the same slot, or the table ends.
class ExchangeTable {
 public:
  // FAILED_PRECONDITION: that host is not this process's, so the worker could not reach the memory.
  absl::Status CheckHost(const ps::OpenSharedMemoryRequest& request) const;

  // Makes the exchange of the worker and slot that the request names, for shard_bytes of the reply,
  // and fills in the rest of the reply.
  absl::Status Open(const ps::OpenSharedMemoryRequest& request, ps::OpenSharedMemoryReply* reply);

  // Null: this worker has no exchange with this token.
  std::shared_ptr<ChunkExchange> Find(uint32_t worker_id, uint64_t token) const;

  // The payload of a chunk that the worker has pushed, in memory of its own. NOT_FOUND: no such
  // exchange (any more): the worker has to send it otherwise. INVALID_ARGUMENT as
  // ChunkExchange::Take.
  absl::StatusOr<Payload> TakePushed(uint32_t worker_id, const ps::SharedChunk& chunk) const;

 private:
  const std::string host_ = HostIdentity();
  mutable absl::Mutex mutex_;
  struct Entry {
    uint32_t worker_id = 0;
    std::shared_ptr<ChunkExchange> exchange;
  };
  std::map<uint32_t, Entry> by_slot_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SHARED_MEMORY_EXCHANGE_TABLE_H_
