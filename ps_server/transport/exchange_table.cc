#include "ps_server/transport/exchange_table.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/wire/grpc/chunk_memory.h"

namespace pushpull {

absl::Status ExchangeTable::CheckHost(const ps::OpenSharedMemoryRequest& request) const {
  if (!host_.empty() && request.host() == host_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "the ps task runs on another machine, or sees other process ids (a container)");
}

absl::Status ExchangeTable::Open(const ps::OpenSharedMemoryRequest& request,
                                 ps::OpenSharedMemoryReply* reply) {
  PP_ASSIGN_OR_RETURN(std::shared_ptr<ChunkExchange> exchange,
                      ChunkExchange::Create(static_cast<int64_t>(reply->shard_bytes())));
  exchange->Describe(reply);
  absl::MutexLock lock(&mutex_);
  by_replica_[request.grant().replica()] = {request.worker_id(), std::move(exchange)};
  return absl::OkStatus();
}

std::shared_ptr<ChunkExchange> ExchangeTable::Find(uint32_t worker_id, uint64_t token) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [replica, entry] : by_replica_) {
    if (entry.worker_id == worker_id && entry.exchange->token() == token) return entry.exchange;
  }
  return nullptr;
}

absl::StatusOr<Payload> ExchangeTable::TakePushed(uint32_t worker_id,
                                                  const ps::SharedChunk& chunk) const {
  const std::shared_ptr<ChunkExchange> exchange = Find(worker_id, chunk.token());
  if (exchange == nullptr) {
    return absl::NotFoundError(absl::StrCat("clone ", worker_id, " has no such shared memory"));
  }
  std::shared_ptr<char[]> memory;
  PP_ASSIGN_OR_RETURN(const uint32_t crc,
                      exchange->Take(chunk, [&](size_t size_bytes) -> absl::StatusOr<char*> {
                        memory = TakeChunkMemory(size_bytes);
                        return memory.get();
                      }));
  char* const data = memory.get();
  return Payload{std::move(memory), data, chunk.size_bytes(), crc};
}

}  // namespace pushpull
