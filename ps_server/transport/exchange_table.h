// The chunk exchanges of a server. There is at most one per replica, so that clones that come and
// go need no more memory than clones that stay.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_EXCHANGE_TABLE_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_EXCHANGE_TABLE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

#include "common/base/payload.h"
#include "common/wire/shared_memory/chunk_exchange.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Thread-safe. The table does not check whether a clone may have an exchange; the caller does. An
// exchange lives until another one is opened for the same replica or the table is destroyed, and
// longer while a call uses it.
class ExchangeTable {
 public:
  // FAILED_PRECONDITION: the clone's host identity differs from this process's, so it could not
  // open the memory.
  absl::Status CheckHost(const ps::OpenSharedMemoryRequest& request) const;

  // Creates the exchange for the worker_id and the granted replica in the request, and for the
  // shard_bytes in the reply. Fills in the rest of the reply. Errors: as from
  // ChunkExchange::Create.
  absl::Status Open(const ps::OpenSharedMemoryRequest& request, ps::OpenSharedMemoryReply* reply);

  // The exchange with this token; null if this clone has none.
  std::shared_ptr<ChunkExchange> Find(uint32_t worker_id, uint64_t token) const;

  // Copies the payload of a pushed chunk out of the clone's exchange, so that the clone can no
  // longer change it. NOT_FOUND: the exchange does not exist or was replaced, so the clone has to
  // send the payload in the chunk. INVALID_ARGUMENT: as from ChunkExchange::Take.
  absl::StatusOr<Payload> TakePushed(uint32_t worker_id, const ps::SharedChunk& chunk) const;

 private:
  const std::string host_ = HostIdentity();
  mutable absl::Mutex mutex_;
  struct Entry {
    uint32_t worker_id = 0;
    std::shared_ptr<ChunkExchange> exchange;
  };
  std::map<uint32_t, Entry> by_replica_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_EXCHANGE_TABLE_H_
