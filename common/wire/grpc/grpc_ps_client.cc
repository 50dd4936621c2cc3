// Tested by tests/ps_server/transport/grpc_ps_test.cc.
// Tested by tests/ps_server/transport/shared_chunks_test.cc.
#include "common/wire/grpc/grpc_ps_client.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/clock.h"
#include "common/base/crc32c.h"
#include "common/base/log_limiter.h"
#include "common/base/status_macros.h"
#include "common/wire/error_detail.h"
#include "common/wire/grpc/active_calls.h"
#include "common/wire/grpc/byte_stream_call.h"
#include "common/wire/grpc/chunk_message.h"
#include "common/wire/grpc/grpc_runtime.h"
#include "common/wire/grpc/peer_channel.h"
#include "common/wire/grpc/status_mapping.h"
#include "common/wire/security/peer_secret.h"
#include "common/wire/shared_memory/worker_exchange.h"
#include "protos/parameter_server.grpc.pb.h"

namespace pushpull {
namespace {

// Converts the status of a call. CANCELLED without an ErrorDetail comes from the server's
// transport, which ends calls when it shuts down, or from CancelCalls. What became of the request
// is unknown, as after a broken connection, so it becomes UNAVAILABLE.
absl::Status FromServer(const grpc::Status& status, absl::string_view context) {
  const absl::Status result = FromGrpcStatus(status, context);
  if (!absl::IsCancelled(result) || GetErrorDetail(result).kind() != ps::ErrorDetail::UNKNOWN) {
    return result;
  }
  return absl::UnavailableError(absl::StrCat(result.message(), " (the server ended the call)"));
}

// Returns whether gRPC here has not taken the answer, because it was longer than
// TransportOptions::max_message_bytes. gRPC makes this error, so it never carries a proof. Snapshot
// alone has answers that grow with the model.
bool IsOversizeSnapshot(const PsMethodRow& row, const grpc::Status& status) {
  return row.path == RowOf(PsMethod::kSnapshot).path &&
         status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
         absl::StrContains(status.error_message(), "message larger than max");
}

class GrpcPushStream final : public PushStream {
 public:
  // exchange and active_calls must outlive the stream.
  GrpcPushStream(std::shared_ptr<PeerStubs> stubs, WorkerExchange* exchange,
                 ActiveCalls* active_calls, const std::string& address, absl::Duration timeout)
      : context_(absl::StrCat("Push to ", address)),
        stubs_(std::move(stubs)),
        exchange_(exchange),
        turn_(exchange->current()),
        call_(&stubs_->raw, RowOf(PsMethod::kPush).path, timeout),
        entry_(active_calls, call_.context()) {}

  absl::Status Send(ps::PushChunk header, const Payload& payload) override {
    if (last_sent_) return absl::FailedPreconditionError("a chunk after the one with the commit");
    last_sent_ = header.has_commit();
    if (!call_.Write(Encode(&header, payload), last_sent_)) {
      return absl::UnavailableError(absl::StrCat(context_, ": the stream broke"));
    }
    return absl::OkStatus();
  }

  void EndSending() override { call_.CloseWrites(); }

  absl::StatusOr<ps::PushReply> Finish() override {
    grpc::ByteBuffer buffer;
    call_.CloseWrites();
    call_.StartRead(&buffer);
    const bool answered = call_.WaitRead();
    const absl::Status end = FromServer(call_.Finish(), context_);
    if (token_ != 0 && absl::IsNotFound(end)) {
      exchange_->Drop(token_);
      return absl::UnavailableError(end.message());
    }
    PP_RETURN_IF_ERROR(end);
    ps::PushReply reply;
    grpc::ProtoBufferReader reader(&buffer);
    if (!answered || !reply.ParseFromZeroCopyStream(&reader)) {
      return absl::InternalError(absl::StrCat(context_, ": no valid reply"));
    }
    return reply;
  }

 private:
  // Fills in the checksum, and the position of the payload if it goes through shared memory.
  grpc::ByteBuffer Encode(ps::PushChunk* header, const Payload& payload) {
    uint32_t crc = 0;
    std::optional<ps::SharedChunk> shared = turn_.Put(payload.size_bytes, [&](char* slot) {
      crc = CopyWithCrc32c(payload.data, payload.size_bytes, slot);
    });
    if (!shared.has_value()) {
      header->set_crc32c(Crc32c(payload.data, payload.size_bytes));
      return SerializeChunk(*header, payload);
    }
    token_ = shared->token();
    header->set_crc32c(crc);
    *header->mutable_shared() = *std::move(shared);
    return SerializeChunk(*header, Payload());
  }

  const std::string context_;
  const std::shared_ptr<PeerStubs> stubs_;
  WorkerExchange* const exchange_;
  SendTurn turn_;
  ByteStreamCall call_;
  const ActiveCalls::Entry entry_;
  uint64_t token_ = 0;  // of the shared memory, once a chunk has gone through it; 0 before
  bool last_sent_ = false;
};

class GrpcPsClient final : public PsClient {
 public:
  GrpcPsClient(const std::string& address, const TransportOptions& options)
      : address_(address),
        channel_(address, options),
        peer_secret_(options.peer_secret),
        exchange_(address, options.shared_memory) {}

  const std::string& address() const override { return address_; }

#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof)                                \
  absl::StatusOr<ps::Reply> Name(const ps::Request& request, absl::Duration timeout) override { \
    return Call(RowOf(PsMethod::k##Name), &ps::ParameterServer::Stub::Name, request, timeout);  \
  }
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

  std::unique_ptr<PushStream> StartPush(absl::Duration timeout) override {
    return std::make_unique<GrpcPushStream>(channel_.Await(timeout), &exchange_, &active_calls_,
                                            address_, timeout);
  }
  absl::Status Pull(const ps::PullRequest& request, absl::Duration timeout, PullSink sink) override;
  void CancelCalls() override { active_calls_.Cancel(); }

 private:
  template <typename Request, typename Reply>
  using Method = grpc::Status (ps::ParameterServer::Stub::*)(grpc::ClientContext*, const Request&,
                                                             Reply*);

  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(const PsMethodRow& row, Method<Request, Reply> method,
                             const Request& request, absl::Duration timeout) {
    if (peer_secret_ != nullptr && row.proof != PeerProof::kNone) {
      return CallWithProof(row, method, request, timeout);
    }
    const std::shared_ptr<PeerStubs> stubs = channel_.Await(timeout);
    grpc::ClientContext context;
    const ActiveCalls::Entry entry(&active_calls_, &context);
    SetDeadline(timeout, &context);
    Reply reply;
    const grpc::Status status = (stubs->typed.get()->*method)(&context, request, &reply);
    if (!status.ok()) return FromServer(status, absl::StrCat(row.name, " at ", address_));
    return reply;
  }

  // A call from one ps task to another. Both sides prove that they belong to the job. An answer
  // without a proof counts as no answer (UNAVAILABLE), so that another program at the address of a
  // task that is down cannot answer for it. RESOURCE_EXHAUSTED for a snapshot that was too long
  // needs no proof: the same call would fail again, and callers repeat it after UNAVAILABLE.
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> CallWithProof(const PsMethodRow& row, Method<Request, Reply> method,
                                      Request request, absl::Duration timeout) {
    // A fresh nonce makes an answer that was recorded earlier useless.
    if constexpr (requires { request.nonce(); }) {
      request.set_nonce(absl::Uniform<uint64_t>(absl::BitGen()));
    }
    const std::shared_ptr<PeerStubs> stubs = channel_.Await(timeout);
    grpc::ClientContext context;
    const ActiveCalls::Entry entry(&active_calls_, &context);
    SetDeadline(timeout, &context);
    const std::string proof = peer_secret_->ProveRequest(row.name, request);
    context.AddMetadata(kPeerProofKey, proof);
    Reply reply;
    const grpc::Status status = (stubs->typed.get()->*method)(&context, request, &reply);
    const std::string what = absl::StrCat(row.name, " at ", address_);
    const bool proven = SameProof(FindPeerProof(context.GetServerTrailingMetadata()),
                                  peer_secret_->ProveAnswer(proof, status, reply));
    if (proven && status.ok()) return reply;
    if (proven || IsOversizeSnapshot(row, status)) return FromServer(status, what);
    const bool answered = status.error_code() != grpc::StatusCode::UNAVAILABLE &&
                          status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED;
    if (!answered) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          absl::StrCat(what, ": ", status.error_message()));
    }
    const absl::Status unproven = absl::UnavailableError(absl::StrCat(
        what, ": whoever answers there has not proven that it is a ps task of this job",
        status.ok() ? "" : absl::StrCat("; it says: ", status.error_message())));
    if (const std::optional<std::string> note = strangers_.Admit(SteadyClock().Now())) {
      LOG(WARNING) << unproven.message() << *note;
    }
    return unproven;
  }

  const std::string address_;
  PeerChannel channel_;
  const std::shared_ptr<const PeerSecret> peer_secret_;
  PeerLogLimiter strangers_;  // messages about whoever answers at the address without a proof
  WorkerExchange exchange_;
  ActiveCalls active_calls_;
};

absl::Status CheckPulledBytes(const ps::PullChunk& header, uint32_t crc,
                              absl::string_view context) {
  if (crc == header.crc32c()) return absl::OkStatus();
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::BAD_CHECKSUM);
  return MakeError(detail,
                   absl::StrCat(context, ": shard ", header.shard(), " chunk ", header.chunk(),
                                ": CRC32C is ", crc, ", the server sent ", header.crc32c()));
}

absl::Status GrpcPsClient::Pull(const ps::PullRequest& request, absl::Duration timeout,
                                PullSink sink) {
  const std::string context = absl::StrCat("Pull from ", address_);
  const ReceiveTurn turn(exchange_.ForPull(request, [&](const ps::OpenSharedMemoryRequest& open) {
    return Call(RowOf(PsMethod::kOpenSharedMemory), &ps::ParameterServer::Stub::OpenSharedMemory,
                open, timeout);
  }));
  ps::PullRequest sent = request;
  if (turn.exchange() != nullptr) sent.set_shared_memory(turn.exchange()->token());
  // While one chunk is decoded, the next one is received into the other buffer.
  grpc::ByteBuffer buffers[2];
  const std::shared_ptr<PeerStubs> stubs = channel_.Await(timeout);
  ByteStreamCall call(&stubs->raw, RowOf(PsMethod::kPull).path, timeout);
  const ActiveCalls::Entry entry(&active_calls_, call.context());
  call.Write(SerializeChunk(sent, Payload()), /*last=*/true);
  int64_t last_chunk = -1;
  call.StartRead(&buffers[0]);
  for (int current = 0; call.WaitRead(); current = 1 - current) {
    call.StartRead(&buffers[1 - current]);
    ps::PullChunk header;
    std::optional<uint32_t> shared_crc;
    const auto place = [&](size_t size_bytes) -> absl::StatusOr<char*> {
      if (static_cast<int64_t>(header.chunk()) <= last_chunk) {
        return absl::InternalError(
            absl::StrCat(context, ": chunk ", header.chunk(), " after chunk ", last_chunk));
      }
      if (!header.has_shared()) return sink(header, size_bytes);
      if (turn.exchange() == nullptr || size_bytes > 0) {
        return absl::InternalError(
            absl::StrCat(context, ": chunk ", header.chunk(),
                         " lies in shared memory, which the pull did not ask for"));
      }
      PP_ASSIGN_OR_RETURN(shared_crc,
                          turn.exchange()->Take(header.shared(), [&](size_t shared_bytes) {
                            return sink(header, shared_bytes);
                          }));
      return nullptr;
    };
    PP_ASSIGN_OR_RETURN(const uint32_t crc, ParseChunkInto(buffers[current], &header, place));
    buffers[current].Clear();
    PP_RETURN_IF_ERROR(CheckPulledBytes(header, shared_crc.value_or(crc), context));
    last_chunk = header.chunk();
  }
  const absl::Status end = FromGrpcStatus(call.Finish(), context);
  if (absl::IsCancelled(end) && GetErrorDetail(end).kind() == ps::ErrorDetail::UNKNOWN) {
    return absl::UnavailableError(
        absl::StrCat(context, ": the server ended the call, perhaps because it was too slow"));
  }
  PP_RETURN_IF_ERROR(end);
  if (last_chunk < 0) return absl::InternalError(absl::StrCat(context, ": no chunk in the reply"));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<PsClient> MakeGrpcPsClient(const std::string& address,
                                           const TransportOptions& options) {
  InitGrpcRuntime();
  return std::make_unique<GrpcPsClient>(address, options);
}

}  // namespace pushpull
