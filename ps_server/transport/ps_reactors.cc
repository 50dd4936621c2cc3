// Tested by tests/ps_server/transport/server_limits_test.cc.
// Tested by tests/ps_server/transport/grpc_ps_test.cc.
// Tested by tests/ps_server/transport/shared_chunks_test.cc.
#include "ps_server/transport/ps_reactors.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

#include "common/base/status_macros.h"
#include "common/wire/gradient_codec.h"
#include "common/wire/grpc/chunk_memory.h"
#include "common/wire/grpc/chunk_message.h"

namespace pushpull {
namespace {

// Holds the CancelFn of a handler's call. Cancel may be called before the handler has returned the
// function; it then runs as soon as it is set.
class CancelSlot {
 public:
  void Set(CancelFn cancel) {
    {
      absl::MutexLock lock(&mutex_);
      if (!cancelled_) {
        cancel_ = std::move(cancel);
        return;
      }
    }
    if (cancel) cancel();
  }

  void Cancel() {
    CancelFn cancel;
    {
      absl::MutexLock lock(&mutex_);
      cancelled_ = true;
      cancel = std::move(cancel_);
      cancel_ = nullptr;
    }
    if (cancel) cancel();
  }

 private:
  absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  CancelFn cancel_ ABSL_GUARDED_BY(mutex_);
};

// The result of one read.
struct Arrival {
  bool ok = false;
  grpc::ByteBuffer buffer;
};

class PushReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  PushReactor(PsHandler* handler, const CallerRule& rule, const ChunkServices* services,
              grpc::CallbackServerContext* context, CallGuards guards, grpc::ByteBuffer* reply)
      : handler_(handler),
        rule_(rule),
        services_(services),
        context_(context),
        guards_(std::move(guards)),
        reply_(reply),
        once_(std::make_shared<FinishOnce<PushReactor>>(this)),
        number_(guards_.watch->Add(guards_.watch->limits().push_idle, [this] { Expire(); })) {
    guards_.account->NotePush(1);
    StartRead(&buffer_);
  }

  // The next chunk is requested before the current one is processed, so that it can arrive
  // meanwhile. If it does, on another thread, it waits in `arrived_`, and no third chunk is
  // requested until the current one is done.
  void OnReadDone(bool ok) override {
    const ServerLimits& limits = guards_.watch->limits();
    guards_.watch->Extend(number_, ok ? limits.push_idle : limits.longest_call);
    if (ok) guards_.account->NoteReceived(buffer_.Length());
    {
      absl::MutexLock lock(&mutex_);
      arrived_.emplace();
      arrived_->ok = ok;
      arrived_->buffer.Swap(&buffer_);
      if (working_) return;
      working_ = true;
    }
    Work();
  }

  void OnCancel() override {
    guards_.account->NoteCancelled();
    cancel_.Cancel();
    if (once_->Claim() != nullptr) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    guards_.account->NotePush(-1);
    guards_.watch->Remove(number_);
    delete this;
  }

 private:
  // Never runs after OnDone, because OnDone waits for it in CallWatch::Remove.
  void Expire() {
    cancel_.Cancel();
    if (once_->Claim() != nullptr) Finish(GivenUp("the push made no progress"));
  }

  void Work() {
    while (true) {
      Arrival arrival;
      {
        absl::MutexLock lock(&mutex_);
        if (!arrived_.has_value()) {
          working_ = false;
          return;
        }
        arrival.ok = arrived_->ok;
        arrival.buffer.Swap(&arrived_->buffer);
        arrived_.reset();
      }
      if (!arrival.ok) {
        if (!context_->IsCancelled()) FinishPush();
        return;
      }
      StartRead(&buffer_);
      const absl::Status status = TakeChunk(arrival.buffer);
      if (!status.ok()) {
        FinishWith(status);
        return;
      }
    }
  }

  absl::Status TakeChunk(const grpc::ByteBuffer& buffer) {
    Payload payload;
    PP_RETURN_IF_ERROR(ParseChunk(buffer, &header_, &payload));
    header_.DiscardUnknownFields();
    PP_RETURN_IF_ERROR(rule_.Check(header_));
    if (header_.has_shared()) {
      if (payload.size_bytes > 0) {
        return absl::InvalidArgumentError(
            "a chunk with one payload in the message and another in shared memory");
      }
      PP_ASSIGN_OR_RETURN(
          payload, services_->exchanges.TakePushed(header_.key().worker_id(), header_.shared()));
      header_.clear_shared();
    }
    PP_RETURN_IF_ERROR(handler_->PushChunk(header_, payload));
    received_ = true;
    return absl::OkStatus();
  }

  void FinishWith(const absl::Status& status) {
    if (once_->Claim() != nullptr) Finish(ToGrpcStatus(status));
  }

  // The peer half-closed the stream. If the stream broke instead, the handler notices that chunks
  // are missing, and OnCancel follows.
  void FinishPush() {
    if (!received_) {
      FinishWith(absl::InvalidArgumentError("a push without any chunk"));
      return;
    }
    cancel_.Set(handler_->FinishPush(header_, [once = once_](absl::StatusOr<ps::PushReply> result) {
      PushReactor* reactor = once->Claim();
      if (reactor == nullptr) return;
      if (result.ok()) {
        const grpc::Slice slice(result->SerializeAsString());
        *reactor->reply_ = grpc::ByteBuffer(&slice, 1);
      }
      reactor->Finish(ToGrpcStatus(result.status()));
    }));
  }

  PsHandler* const handler_;
  const CallerRule rule_;
  const ChunkServices* const services_;
  grpc::CallbackServerContext* const context_;
  const CallGuards guards_;
  grpc::ByteBuffer* const reply_;
  const std::shared_ptr<FinishOnce<PushReactor>> once_;
  CancelSlot cancel_;
  const CallWatch::CallNumber number_;
  grpc::ByteBuffer buffer_;
  absl::Mutex mutex_;
  std::optional<Arrival> arrived_ ABSL_GUARDED_BY(mutex_);
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  ps::PushChunk header_;  // of the last chunk
  bool received_ = false;
};

class PullReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  PullReactor(PsHandler* handler, const CallerRule& rule, ChunkServices* services,
              grpc::CallbackServerContext* context, CallGuards guards,
              const grpc::ByteBuffer& request)
      : services_(services),
        context_(context),
        guards_(std::move(guards)),
        once_(std::make_shared<FinishOnce<PullReactor>>(this)),
        number_(guards_.watch->Add(absl::InfiniteDuration(), [this] { Expire(); })) {
    guards_.account->NoteReceived(request.Length());
    ps::PullRequest parsed;
    if (const absl::Status accepted = Accept(request, rule, &parsed); !accepted.ok()) {
      once_->Claim();
      Finish(ToGrpcStatus(accepted));
      return;
    }
    float32_chunks_.assign(parsed.float32_chunks().begin(), parsed.float32_chunks().end());
    worker_id_ = parsed.worker_id();
    shared_memory_ = parsed.shared_memory();
    cancel_.Set(handler->Pull(parsed, [once = once_](absl::StatusOr<PullSnapshot> result) {
      PullReactor* reactor = once->Claim();
      if (reactor != nullptr) reactor->Answer(std::move(result));
    }));
  }

  void OnWriteDone(bool ok) override {
    guards_.watch->Extend(number_, guards_.watch->limits().pull_stalled);
    guards_.account->NoteSent();
    if (!ok) {
      Finish(grpc::Status::CANCELLED);
      return;
    }
    WriteNext();
  }

  // Once the answer has begun, a broken stream ends the call in OnWriteDone instead.
  void OnCancel() override {
    guards_.account->NoteCancelled();
    cancel_.Cancel();
    if (once_->Claim() != nullptr) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    guards_.watch->Remove(number_);
    delete this;
  }

 private:
  // Sets `parsed` and codec_. Returns why the request is refused, if it is.
  absl::Status Accept(const grpc::ByteBuffer& request, const CallerRule& rule,
                      ps::PullRequest* parsed) {
    PP_RETURN_IF_ERROR(
        CheckRequestBytes(request.Length(), guards_.watch->limits().max_request_bytes));
    grpc::ByteBuffer copy = request;
    grpc::ProtoBufferReader reader(&copy);
    if (!parsed->ParseFromZeroCopyStream(&reader)) {
      return absl::InvalidArgumentError("malformed PullRequest");
    }
    parsed->DiscardUnknownFields();
    PP_RETURN_IF_ERROR(rule.Check(*parsed));
    PP_ASSIGN_OR_RETURN(codec_, FindWeightCodec(parsed->encoding()));
    return absl::OkStatus();
  }

  // Never runs after OnDone, because OnDone waits for it in CallWatch::Remove. Once the answer has
  // begun, the call has to be cancelled: a status would have to wait for the chunk that the peer
  // does not receive.
  void Expire() {
    if (once_->Claim() == nullptr) {
      context_->TryCancel();
      return;
    }
    cancel_.Cancel();
    Finish(GivenUp("the version was not available in time"));
  }

  void Answer(absl::StatusOr<PullSnapshot> result) {
    if (!result.ok()) {
      Finish(ToGrpcStatus(result.status()));
      return;
    }
    guards_.watch->Extend(number_, guards_.watch->limits().pull_stalled);
    snapshot_ = std::move(*result);
    checksums_ = services_->checksums.For(snapshot_, codec_);
    if (!float32_chunks_.empty()) {
      float32_checksums_ = services_->checksums.For(snapshot_, &Float32Codec());
    }
    turn_.emplace(services_->exchanges.Find(worker_id_, shared_memory_));
    header_.set_epoch(snapshot_.epoch);
    header_.set_version(snapshot_.version);
    header_.set_shard(snapshot_.shard);
    WriteNext();
  }

  // Writes one chunk at a time, so that no chunks queue up for a slow reader, and so that a pull
  // holds one encoded chunk at most.
  void WriteNext() {
    const Payload floats = ChunkOfSnapshot(snapshot_, static_cast<int>(next_chunk_));
    const char* const end = snapshot_.payload.data + snapshot_.payload.size_bytes;
    const bool as_asked_for_all =
        !std::binary_search(float32_chunks_.begin(), float32_chunks_.end(), next_chunk_);
    const GradientCodec& codec = as_asked_for_all ? *codec_ : Float32Codec();
    SnapshotChecksums& checksums = as_asked_for_all ? *checksums_ : *float32_checksums_;
    header_.set_chunk(next_chunk_);
    header_.set_encoding(codec.encoding());
    const size_t size_bytes = checksums.EncodedBytes(next_chunk_);
    uint32_t crc = 0;
    const auto encode = [&](char* to) { crc = checksums.Copy(next_chunk_, to); };
    std::optional<ps::SharedChunk> shared = turn_->Put(size_bytes, encode);
    Payload payload;
    if (shared.has_value()) {
      *header_.mutable_shared() = *std::move(shared);
    } else {
      header_.clear_shared();
      if (codec.is_float32()) {
        payload = floats;
        crc = checksums.Get(next_chunk_);
      } else {
        std::shared_ptr<char[]> encoded = TakeChunkMemory(size_bytes);
        encode(encoded.get());
        payload = {encoded, encoded.get(), size_bytes};
      }
    }
    header_.set_crc32c(crc);
    buffer_ = SerializeChunk(header_, payload);
    ++next_chunk_;
    if (floats.data + floats.size_bytes == end) {
      snapshot_.payload.owner.reset();  // buffer_ keeps what it still needs
      StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
    } else {
      StartWrite(&buffer_);
    }
  }

  ChunkServices* const services_;
  grpc::CallbackServerContext* const context_;
  const CallGuards guards_;
  const std::shared_ptr<FinishOnce<PullReactor>> once_;
  CancelSlot cancel_;
  const CallWatch::CallNumber number_;
  const GradientCodec* codec_ = nullptr;  // for PullRequest.encoding
  std::vector<uint32_t> float32_chunks_;  // of the PullRequest
  uint32_t worker_id_ = 0;
  uint64_t shared_memory_ = 0;    // PullRequest.shared_memory
  std::optional<SendTurn> turn_;  // set once the answer has begun
  PullSnapshot snapshot_;
  std::shared_ptr<SnapshotChecksums> checksums_;
  std::shared_ptr<SnapshotChecksums> float32_checksums_;  // of float32_chunks_; null if none
  ps::PullChunk header_;
  grpc::ByteBuffer buffer_;
  uint32_t next_chunk_ = 0;
};

}  // namespace

grpc::Status GivenUp(absl::string_view why) {
  return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED,
                      absl::StrCat("the server gave up the call: ", why));
}

absl::Status CheckRequestBytes(size_t size_bytes, int64_t allowed) {
  if (size_bytes <= static_cast<size_t>(allowed)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("the request has ", size_bytes, " bytes, allowed are ", allowed));
}

grpc::ServerReadReactor<grpc::ByteBuffer>* StartPushReactor(
    PsHandler* handler, const CallerRule& rule, const ChunkServices* services,
    grpc::CallbackServerContext* context, CallGuards guards, grpc::ByteBuffer* reply) {
  return new PushReactor(handler, rule, services, context, std::move(guards), reply);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartPullReactor(
    PsHandler* handler, const CallerRule& rule, ChunkServices* services,
    grpc::CallbackServerContext* context, CallGuards guards, const grpc::ByteBuffer& request) {
  return new PullReactor(handler, rule, services, context, std::move(guards), request);
}

}  // namespace pushpull
