// The client interface to one parameter-server task, used by clones, by administrators' tools and
// by the coordinator. common/wire/grpc/grpc_ps_client.h implements it over gRPC; for tests,
// tests/testkit/in_process_ps_client.h calls the handler directly.
//
// Thread-safe. Every call blocks until it is answered or its timeout has passed
// (DEADLINE_EXCEEDED). Push and Pull, which transfer as many bytes as the model has, may take
// longer: there the timeout is that of each wait for the server, and a transfer that goes on,
// however slowly, is not cut. An error on which a program has to act carries a ps::ErrorDetail
// (common/wire/error_detail.h). After UNAVAILABLE the server may or may not have done what was
// asked; every call is safe to repeat with the same arguments.
#ifndef PUSHPULL_COMMON_WIRE_PS_CLIENT_H_
#define PUSHPULL_COMMON_WIRE_PS_CLIENT_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/payload.h"
#include "common/wire/methods.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// Sends one contribution to one shard. For use by one thread. Destroying the stream before Finish
// cancels the push.
class PushStream {
 public:
  virtual ~PushStream() = default;
  // Sends one chunk; blocks on flow control. Leave header.payload empty; Send fills in
  // header.crc32c. A chunk that carries a commit must be the last one.
  //
  // The bytes must not change until Finish returns or the stream is destroyed. The transport may
  // keep payload.owner for longer than that, so without an owner the memory must outlive the
  // client. An error only means that the stream broke: call Finish for the reason.
  virtual absl::Status Send(ps::PushChunk header, const Payload& payload) = 0;
  // Tells the server that no chunk follows, so that it does not wait for another one while the
  // caller sends something else. Finish does the same.
  virtual void EndSending() {}
  // Blocks until the server has answered the push.
  virtual absl::StatusOr<ps::PushReply> Finish() = 0;
};

class PsClient {
 public:
  virtual ~PsClient() = default;

  // Pull calls the sink for each chunk as it arrives, in increasing order of chunk, on the calling
  // thread. The sink returns the address to which the chunk's size_bytes are written; it may be
  // null if size_bytes is 0. An error ends the pull with that error. header.payload is empty.
  //
  // The checksum is verified after the bytes are written there, so do not use them before Pull has
  // returned OK.
  using PullSink =
      absl::FunctionRef<absl::StatusOr<char*>(const ps::PullChunk& header, size_t size_bytes)>;

  // Returns the address of the task, for messages.
  virtual const std::string& address() const = 0;

  // One function per row of the table (methods.h), such as
  //   virtual absl::StatusOr<ps::EvictReply> Evict(const ps::EvictRequest& request,
  //                                                absl::Duration timeout) = 0;
  // protos/parameter_server.proto says what each does. Checkpoint blocks until the checkpoint is on
  // the disk.
#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof) \
  virtual absl::StatusOr<ps::Reply> Name(const ps::Request& request, absl::Duration timeout) = 0;
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

  // Blocks for at most a second, while there is no connection. `timeout` is the longest time for
  // which Send waits until the server takes more bytes, and Finish for the answer.
  virtual std::unique_ptr<PushStream> StartPush(absl::Duration timeout) = 0;
  // `timeout` is the longest wait for the first chunk, and for each chunk after it.
  virtual absl::Status Pull(const ps::PullRequest& request, absl::Duration timeout,
                            PullSink sink) = 0;

  // Makes the calls and pushes under way, and all later ones, fail with UNAVAILABLE: those that
  // wait for the server at once, those that wait for a connection within a second. For a caller
  // that needs no answer any more. May be called while other threads are in calls. Never blocks.
  virtual void CancelCalls() {}
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_PS_CLIENT_H_
