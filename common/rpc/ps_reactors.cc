#include "common/rpc/ps_reactors.h"

#include <grpcpp/server_context.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <optional>
#include <string>

#include "absl/synchronization/mutex.h"

#include "common/rpc/chunk_codec.h"
#include "common/sharding.h"
#include "common/status_macros.h"

namespace pushpull {
namespace {

// Remembers how to cancel a handler's call that may be cancelled before the handler has returned.
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

// The end of one read.
struct Arrival {
  bool ok = false;
  grpc::ByteBuffer buffer;
};

class PushReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  PushReactor(PsHandler* handler, grpc::CallbackServerContext* context, grpc::ByteBuffer* reply)
      : handler_(handler),
        context_(context),
        reply_(reply),
        once_(std::make_shared<FinishOnce<PushReactor>>(this)) {
    StartRead(&buffer_);
  }

  // The next chunk is asked for before this one is worked on, so that it is on its way meanwhile.
  // It may arrive, on another thread, before the work is done; then it waits, and no third one is
  // asked for.
  void OnReadDone(bool ok) override {
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
    cancel_.Cancel();
    if (once_->Claim() != nullptr) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
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
      buffer_.Clear();
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
    PP_RETURN_IF_ERROR(DecodeChunk(buffer, &header_, &payload));
    PP_RETURN_IF_ERROR(handler_->PushChunk(header_, payload));
    received_ = true;
    return absl::OkStatus();
  }

  void FinishWith(const absl::Status& status) {
    if (once_->Claim() != nullptr) Finish(ToGrpcStatus(status));
  }

  // The peer half-closed. (Or the stream broke just now: the handler sees that chunks are missing,
  // and OnCancel comes next.)
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
  grpc::CallbackServerContext* const context_;
  grpc::ByteBuffer* const reply_;
  const std::shared_ptr<FinishOnce<PushReactor>> once_;
  CancelSlot cancel_;
  grpc::ByteBuffer buffer_;
  absl::Mutex mutex_;
  std::optional<Arrival> arrived_ ABSL_GUARDED_BY(mutex_);
  bool working_ ABSL_GUARDED_BY(mutex_) = false;
  ps::PushChunk header_;  // of the last chunk
  bool received_ = false;
};

class PullReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  PullReactor(PsHandler* handler, ChecksumCache* checksums, const grpc::ByteBuffer& request)
      : checksum_cache_(checksums), once_(std::make_shared<FinishOnce<PullReactor>>(this)) {
    grpc::ByteBuffer copy = request;
    grpc::ProtoBufferReader reader(&copy);
    ps::PullRequest parsed;
    if (!parsed.ParseFromZeroCopyStream(&reader)) {
      once_->Claim();
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "malformed PullRequest"));
      return;
    }
    cancel_.Set(handler->Pull(parsed, [once = once_](absl::StatusOr<PullSnapshot> result) {
      PullReactor* reactor = once->Claim();
      if (reactor != nullptr) reactor->Answer(std::move(result));
    }));
  }

  void OnWriteDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::CANCELLED);
      return;
    }
    WriteNext();
  }

  // Once the answer has begun, a broken stream shows in OnWriteDone.
  void OnCancel() override {
    cancel_.Cancel();
    if (once_->Claim() != nullptr) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  void Answer(absl::StatusOr<PullSnapshot> result) {
    if (!result.ok()) {
      Finish(ToGrpcStatus(result.status()));
      return;
    }
    snapshot_ = std::move(*result);
    checksums_ = checksum_cache_->For(snapshot_);
    header_.set_epoch(snapshot_.epoch);
    header_.set_version(snapshot_.version);
    header_.set_shard(snapshot_.shard);
    WriteNext();
  }

  // One chunk at a time: what a slow reader has not taken is not queued either.
  void WriteNext() {
    constexpr size_t kChunkBytes = Sharding::kChunkBytes;
    const size_t begin = next_chunk_ * kChunkBytes;
    const size_t total = snapshot_.payload.size_bytes;
    Payload payload = snapshot_.payload;
    payload.data += begin;
    payload.size_bytes = std::min(kChunkBytes, total - begin);
    header_.set_chunk(next_chunk_);
    header_.set_crc32c(checksums_->Get(next_chunk_));
    buffer_ = EncodeChunk(header_, payload);
    ++next_chunk_;
    if (begin + payload.size_bytes == total) {
      StartWriteAndFinish(&buffer_, grpc::WriteOptions(), grpc::Status::OK);
    } else {
      StartWrite(&buffer_);
    }
  }

  ChecksumCache* const checksum_cache_;
  const std::shared_ptr<FinishOnce<PullReactor>> once_;
  CancelSlot cancel_;
  PullSnapshot snapshot_;
  std::shared_ptr<SnapshotChecksums> checksums_;
  ps::PullChunk header_;
  grpc::ByteBuffer buffer_;
  uint32_t next_chunk_ = 0;
};

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* StartPushReactor(PsHandler* handler,
                                                            grpc::CallbackServerContext* context,
                                                            grpc::ByteBuffer* reply) {
  return new PushReactor(handler, context, reply);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartPullReactor(PsHandler* handler,
                                                             ChecksumCache* checksums,
                                                             const grpc::ByteBuffer& request) {
  return new PullReactor(handler, checksums, request);
}

}  // namespace pushpull
