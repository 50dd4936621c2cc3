// The server side of each kind of call: translates between gRPC's reactors and a PsHandler. A
// reactor deletes itself when its call is over; answers that come later are dropped. Calls that
// make no progress are ended as ServerLimits says. gRPC calls the reactors on its threads, and the
// handler may answer on any thread.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_PS_REACTORS_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_PS_REACTORS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/wire/grpc/status_mapping.h"
#include "common/wire/ps_handler.h"
#include "common/wire/security/caller_rule.h"
#include "ps_server/transport/call_watch.h"
#include "ps_server/transport/checksum_cache.h"
#include "ps_server/transport/connection_table.h"
#include "ps_server/transport/exchange_table.h"
#include "ps_server/transport/finish_once.h"

namespace pushpull {

// The objects that monitor a call. `watch` must outlive the call.
struct CallGuards {
  CallWatch* watch;
  std::shared_ptr<ConnectionAccount> account;  // of the call's connection; never null
};

// State that all pushes and pulls of a server share.
struct ChunkServices {
  ChecksumCache checksums;
  ExchangeTable exchanges;
};

// The status of a call that the server gave up: DEADLINE_EXCEEDED with a message that ends with
// `why`.
grpc::Status GivenUp(absl::string_view why);

// RESOURCE_EXHAUSTED: a request has more bytes than `allowed`.
absl::Status CheckRequestBytes(size_t size_bytes, int64_t allowed);

// A call with one request and one reply, which may come later.
template <typename Reply>
class UnaryReactor final : public grpc::ServerUnaryReactor {
 public:
  // Called with the answer right before it is sent, to add trailing metadata. Not called for calls
  // that were cancelled or expired.
  using ProveFn = std::function<void(const grpc::Status& status, const Reply& reply)>;

  // reply belongs to gRPC and is valid until OnDone. prove may be null.
  UnaryReactor(Reply* reply, CallGuards guards, ProveFn prove = nullptr)
      : reply_(reply),
        guards_(std::move(guards)),
        prove_(std::move(prove)),
        once_(std::make_shared<FinishOnce<UnaryReactor>>(this)),
        number_(guards_.watch->Add(absl::InfiniteDuration(), [once = once_] {
          UnaryReactor* reactor = once->Claim();
          if (reactor != nullptr) reactor->Finish(GivenUp("no answer was found in time"));
        })) {}

  // The callback that answers the call. It may be called on any thread, also after the reactor is
  // gone.
  PsHandler::Done<Reply> MakeDone() {
    return [once = once_](absl::StatusOr<Reply> result) {
      UnaryReactor* reactor = once->Claim();
      if (reactor == nullptr) return;
      if (result.ok()) *reactor->reply_ = std::move(*result);
      const grpc::Status status = ToGrpcStatus(result.status());
      if (reactor->prove_) reactor->prove_(status, *reactor->reply_);
      reactor->Finish(status);
    };
  }

  void OnCancel() override {
    guards_.account->NoteCancelled();
    if (once_->Claim() != nullptr) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    guards_.watch->Remove(number_);
    delete this;
  }

 private:
  Reply* const reply_;
  const CallGuards guards_;
  const ProveFn prove_;
  const std::shared_ptr<FinishOnce<UnaryReactor>> once_;
  const CallWatch::CallNumber number_;
};

// Start the reactor of a push or a pull. handler and services must outlive the call. `rule` is
// applied to every chunk of a push and to the request of a pull, and the handler gets neither with
// fields that this build does not know; `reply` receives the serialised ps::PushReply.
grpc::ServerReadReactor<grpc::ByteBuffer>* StartPushReactor(
    PsHandler* handler, const CallerRule& rule, const ChunkServices* services,
    grpc::CallbackServerContext* context, CallGuards guards, grpc::ByteBuffer* reply);

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartPullReactor(
    PsHandler* handler, const CallerRule& rule, ChunkServices* services,
    grpc::CallbackServerContext* context, CallGuards guards, const grpc::ByteBuffer& request);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_PS_REACTORS_H_
