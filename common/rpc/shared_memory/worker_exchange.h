// A worker's side of the shared memory with one ps task: asks for it when it may be had, and says
// in the log how chunks travel.
#ifndef PUSHPULL_COMMON_RPC_SHARED_MEMORY_WORKER_EXCHANGE_H_
#define PUSHPULL_COMMON_RPC_SHARED_MEMORY_WORKER_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

#include "common/rpc/shared_memory/chunk_exchange.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Thread-safe.
class WorkerExchange {
 public:
  // address: of the task, for messages. Not wanted: there is never an exchange.
  WorkerExchange(std::string address, bool wanted)
      : address_(std::move(address)), wanted_(wanted), host_(wanted ? HostIdentity() : "") {}

  // The exchange for a pull, which tells who the worker is. Without one, the first pull of an epoch
  // or with a new grant asks the server for it.
  using OpenFn = absl::FunctionRef<absl::StatusOr<ps::OpenSharedMemoryReply>(
      const ps::OpenSharedMemoryRequest&)>;
  std::shared_ptr<ChunkExchange> ForPull(const ps::PullRequest& pull, OpenFn open);

  // Null: chunks carry their payloads.
  std::shared_ptr<ChunkExchange> current() const;
  // The server does not know this one any more.
  void Drop(uint64_t token);

 private:
  const std::string address_;
  const bool wanted_;
  const std::string host_;
  mutable absl::Mutex mutex_;
  // When the server was asked last.
  struct Asked {
    uint64_t epoch = 0;
    uint64_t grant = 0;
  };
  std::optional<Asked> asked_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ChunkExchange> exchange_ ABSL_GUARDED_BY(mutex_);  // of asked_'s epoch
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SHARED_MEMORY_WORKER_EXCHANGE_H_
