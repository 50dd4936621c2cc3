// A clone's side of the shared memory with one ps task. Requests an exchange from the task when
// that may succeed, and logs whether chunks travel through shared memory or through the connection.
#ifndef PUSHPULL_COMMON_WIRE_SHARED_MEMORY_WORKER_EXCHANGE_H_
#define PUSHPULL_COMMON_WIRE_SHARED_MEMORY_WORKER_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

#include "common/wire/shared_memory/chunk_exchange.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Thread-safe.
class WorkerExchange {
 public:
  // address: the ps task, for log messages. wanted: false means that there is never an exchange.
  WorkerExchange(std::string address, bool wanted)
      : address_(std::move(address)), wanted_(wanted), host_(wanted ? HostIdentity() : "") {}

  // The exchange for `pull`; null if the chunks have to carry their payloads. If there is none yet
  // for the pull's epoch, requests one with `open`, a blocking call to the server, using the pull's
  // worker_id and grant. After a refusal, or after Drop, the request is repeated only in a new
  // epoch or with a new grant; after UNAVAILABLE, the next pull repeats it.
  using OpenFn = absl::FunctionRef<absl::StatusOr<ps::OpenSharedMemoryReply>(
      const ps::OpenSharedMemoryRequest&)>;
  std::shared_ptr<ChunkExchange> ForPull(const ps::PullRequest& pull, OpenFn open);

  // The current exchange. Null: chunks carry their payloads.
  std::shared_ptr<ChunkExchange> current() const;
  // Forgets the exchange with this token, because the server no longer has it.
  void Drop(uint64_t token);

 private:
  const std::string address_;
  const bool wanted_;
  const std::string host_;
  mutable absl::Mutex mutex_;
  // The epoch and grant with which the server was last asked.
  struct Asked {
    uint64_t epoch = 0;
    uint64_t grant = 0;
  };
  std::optional<Asked> asked_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<ChunkExchange> exchange_ ABSL_GUARDED_BY(mutex_);  // of asked_'s epoch
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SHARED_MEMORY_WORKER_EXCHANGE_H_
