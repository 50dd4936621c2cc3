// The server interface of a parameter-server task: what it does with each request, independent of
// the transport. ps_server/runtime implements it; ps_server/transport/grpc_ps_server.h serves it
// over gRPC and tests/testkit/in_process_ps_client.h calls it directly.
//
// Thread rule: the transport calls from any thread, several at once. An implementation must not
// block except for a short lock. It answers by calling `done` exactly once, from any thread, at
// once or later; `done` does not block.
#ifndef PUSHPULL_COMMON_WIRE_PS_HANDLER_H_
#define PUSHPULL_COMMON_WIRE_PS_HANDLER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/payload.h"
#include "common/wire/methods.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// One shard at one version. It is pinned: the bytes do not change while a copy of `payload.owner`
// lives.
struct PullSnapshot {
  uint64_t epoch = 0;
  uint64_t version = 0;
  uint32_t shard = 0;
  Payload payload;  // the whole shard, float32
};

// Returns the bytes of one chunk (sharding.h). They share the owner of the snapshot.
Payload ChunkOfSnapshot(const PullSnapshot& snapshot, int chunk);

// The transport calls this to cancel a waiting call, because the peer went away or its deadline
// passed. Calling it late or twice is harmless. `done` may still be called afterwards; the
// transport then drops the answer.
using CancelFn = std::function<void()>;

class PsHandler {
 public:
  template <typename Reply>
  using Done = std::function<void(absl::StatusOr<Reply>)>;

  virtual ~PsHandler() = default;

  // One function per row of the table, such as
  //   virtual void Evict(const ps::EvictRequest& request, Done<ps::EvictReply> done);
  // Here they answer UNIMPLEMENTED.
#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof) \
  virtual void Name(const ps::Request&, Done<ps::Reply> done) { done(NotServed(#Name)); }
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

  // Takes one chunk of a push. header.payload is empty; header.crc32c is what the peer sent, and
  // the handler verifies it. The handler may keep the payload, which keeps its memory alive. An
  // error ends the stream with that status.
  virtual absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) = 0;
  // Called after the last chunk of a stream. `last` is the header of that chunk.
  virtual CancelFn FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) = 0;
  virtual CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) = 0;
  // Answers whether the clone may use shared memory, and how large the shard is. The transport
  // fills in the rest: the memory belongs to the transport.
  virtual void OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                                Done<ps::OpenSharedMemoryReply> done) = 0;

 private:
  static absl::Status NotServed(const char* method) {
    return absl::UnimplementedError(std::string(method) + " is not served here");
  }
};

// For a class that implements PsHandler: declares all of its functions.
#define PUSHPULL_HANDLER_FUNCTION(Name, Request, Reply, callers, task, proof) \
  void Name(const ps::Request& request, Done<ps::Reply> done) override;
#define PUSHPULL_DECLARE_HANDLER_FUNCTIONS                                              \
  PUSHPULL_UNARY_METHODS(PUSHPULL_HANDLER_FUNCTION)                                     \
  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) override; \
  CancelFn FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) override;    \
  CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) override;      \
  void OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,                     \
                        Done<ps::OpenSharedMemoryReply> done) override;

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_PS_HANDLER_H_
