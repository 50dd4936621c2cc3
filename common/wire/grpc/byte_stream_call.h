// One bidirectional gRPC call of raw messages. The call has a private completion queue, and the
// calling thread polls it. The call as a whole may take long, because a large model over a slow
// network does; what is bounded is each wait for one operation.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_BYTE_STREAM_CALL_H_
#define PUSHPULL_COMMON_WIRE_GRPC_BYTE_STREAM_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <array>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace pushpull {

// Sets the deadline of a call to now + `timeout` on the steady clock. Longer timeouts than a day,
// infinite ones included, become a day; negative ones become 0.
void SetDeadline(absl::Duration timeout, grpc::ClientContext* context);

// Not thread-safe. The destructor cancels the call unless Finish has returned, and waits for its
// end.
class ByteStreamCall {
 public:
  // method: the full path, such as "/ps.ParameterServer/Push". Nothing is sent before the first
  // Write. A function that has waited for one operation for `timeout` cancels the call, and Finish
  // then returns DEADLINE_EXCEEDED. `stub` must outlive the call.
  ByteStreamCall(grpc::GenericStub* stub, const std::string& method, absl::Duration timeout);
  ~ByteStreamCall();
  ByteStreamCall(const ByteStreamCall&) = delete;
  ByteStreamCall& operator=(const ByteStreamCall&) = delete;

  // Waits until the transport has taken the previous message, then starts sending `message`.
  // Returns false if the stream is broken; Finish then returns the reason. `last` half-closes the
  // stream after this message: no Write may follow.
  bool Write(const grpc::ByteBuffer& message, bool last);

  // Half-closes the stream. Does nothing if the last message has been written.
  void CloseWrites();

  // Starts receiving the next message into `message`, which must stay valid until WaitRead returns.
  void StartRead(grpc::ByteBuffer* message);
  // Waits for that message. Returns false if the stream ended or broke before it came.
  bool WaitRead();

  // Half-closes the stream if that has not been done, and waits for the status of the call. Before
  // that, all messages must have been read or Cancel called; otherwise it may wait for `timeout`.
  grpc::Status Finish();

  void Cancel() { context_.TryCancel(); }

  // The context of the call, for ActiveCalls. It lives as long as the call.
  grpc::ClientContext* context() { return &context_; }

 private:
  enum Operation { kWrite, kRead, kFinish, kOperations };

  void* Begin(Operation operation);
  bool Wait(Operation operation);

  const absl::Duration timeout_;  // of each wait
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  std::array<bool, kOperations> pending_{};
  std::array<bool, kOperations> succeeded_{};
  bool started_ = false;
  bool closed_ = false;
  bool finished_ = false;
  bool expired_ = false;  // a wait has lasted for timeout_, so the call was cancelled
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_BYTE_STREAM_CALL_H_
