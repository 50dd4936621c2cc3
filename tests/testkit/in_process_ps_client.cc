#include "tests/testkit/in_process_ps_client.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"

#include "common/base/crc32c.h"
#include "common/base/monotonic_wait.h"
#include "common/base/status_macros.h"
#include "common/model/sharding.h"
#include "common/wire/error_detail.h"
#include "common/wire/gradient_codec.h"

namespace pushpull {
namespace {

// The answer for which a caller waits. It may arrive after the caller has given up.
template <typename Reply>
class Answer {
 public:
  PsHandler::Done<Reply> MakeDone(std::shared_ptr<Answer> self) {
    return [self = std::move(self)](absl::StatusOr<Reply> result) {
      absl::MutexLock lock(&self->mutex_);
      self->result_ = std::move(result);
      self->arrived_.NotifyAll();
    };
  }

  absl::StatusOr<Reply> Wait(const Deadline& deadline, absl::string_view context) {
    absl::MutexLock lock(&mutex_);
    const auto answered = [this]()
                              ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return result_.has_value(); };
    if (!arrived_.Await(&mutex_, answered, deadline.Left())) {
      return absl::DeadlineExceededError(absl::StrCat(context, ": deadline exceeded"));
    }
    return std::move(*result_);
  }

 private:
  absl::Mutex mutex_;
  MonotonicCondVar arrived_;
  std::optional<absl::StatusOr<Reply>> result_ ABSL_GUARDED_BY(mutex_);
};

// State that all calls of one client share.
class Line {
 public:
  Line(PsHandler* handler, std::string address, FaultHook hook)
      : handler_(handler), address_(std::move(address)), hook_(std::move(hook)) {}

  PsHandler* handler() const { return handler_; }
  const std::string& address() const { return address_; }

  CallFault Next(absl::string_view method, uint32_t chunk = 0) {
    const uint64_t sequence = sequence_.fetch_add(1);
    if (hook_ == nullptr) return CallFault();
    const CallFault fault = hook_(MessageInfo{method, sequence, chunk});
    if (fault.delay > absl::ZeroDuration()) absl::SleepFor(fault.delay);
    return fault;
  }

  std::string Context(absl::string_view method) const {
    return absl::StrCat(method, " at ", address_);
  }
  absl::Status Lost(absl::string_view method) const {
    return absl::UnavailableError(absl::StrCat(Context(method), ": connection lost"));
  }

 private:
  PsHandler* const handler_;
  const std::string address_;
  const FaultHook hook_;
  std::atomic<uint64_t> sequence_{0};
};

// Copies the payload, because the handler may keep it after the caller has reused its memory.
// `damage` flips one bit of the copy.
Payload CopyOf(const Payload& payload, bool damage) {
  std::shared_ptr<char[]> bytes(new char[payload.size_bytes]);
  if (payload.size_bytes > 0) std::memcpy(bytes.get(), payload.data, payload.size_bytes);
  if (damage && payload.size_bytes > 0) bytes[payload.size_bytes / 2] ^= 1;
  return Payload{bytes, bytes.get(), payload.size_bytes};
}

class InProcessPushStream final : public PushStream {
 public:
  InProcessPushStream(Line* line, absl::Duration timeout) : line_(line), timeout_(timeout) {}

  absl::Status Send(ps::PushChunk header, const Payload& payload) override {
    if (!status_.ok()) return status_;
    if (last_.has_commit()) {
      return absl::FailedPreconditionError("a chunk follows the chunk with the commit");
    }
    header.set_crc32c(Crc32c(payload.data, payload.size_bytes));
    const CallFault fault = line_->Next("PushChunk", header.chunk());
    if (fault.drop_request) return status_ = line_->Lost("Push");
    const Payload copy = CopyOf(payload, fault.damage);
    for (int i = 0; i <= fault.duplicates && status_.ok(); ++i) {
      status_ = line_->handler()->PushChunk(header, copy);
    }
    if (fault.drop_reply && status_.ok()) status_ = line_->Lost("Push");
    sent_ = true;
    last_ = std::move(header);
    return status_;
  }

  absl::StatusOr<ps::PushReply> Finish() override {
    PP_RETURN_IF_ERROR(status_);
    if (!sent_) return absl::InvalidArgumentError("a push without any chunk");
    const CallFault fault = line_->Next("FinishPush");
    if (fault.drop_request) return line_->Lost("Push");
    absl::StatusOr<ps::PushReply> result;
    for (int i = 0; i <= fault.duplicates; ++i) {
      auto answer = std::make_shared<Answer<ps::PushReply>>();
      const CancelFn cancel = line_->handler()->FinishPush(last_, answer->MakeDone(answer));
      if (fault.drop_reply) continue;
      result = answer->Wait(Deadline(timeout_), line_->Context("Push"));
      if (absl::IsDeadlineExceeded(result.status()) && cancel) cancel();
    }
    if (fault.drop_reply) return line_->Lost("Push");
    return result;
  }

 private:
  Line* const line_;
  const absl::Duration timeout_;
  absl::Status status_;
  ps::PushChunk last_;
  bool sent_ = false;
};

class InProcessPsClient final : public PsClient {
 public:
  InProcessPsClient(PsHandler* handler, const std::string& address, FaultHook hook)
      : line_(handler, address, std::move(hook)) {}

  const std::string& address() const override { return line_.address(); }

#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof)                                \
  absl::StatusOr<ps::Reply> Name(const ps::Request& request, absl::Duration timeout) override { \
    return Call(#Name, &PsHandler::Name, request, timeout);                                     \
  }
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

  std::unique_ptr<PushStream> StartPush(absl::Duration timeout) override {
    return std::make_unique<InProcessPushStream>(&line_, timeout);
  }
  absl::Status Pull(const ps::PullRequest& request, absl::Duration timeout, PullSink sink) override;

 private:
  template <typename Request, typename Reply>
  absl::StatusOr<Reply> Call(absl::string_view name,
                             void (PsHandler::*method)(const Request&, PsHandler::Done<Reply>),
                             const Request& request, absl::Duration timeout) {
    const Deadline deadline(timeout);
    const CallFault fault = line_.Next(name);
    if (fault.drop_request) return line_.Lost(name);
    absl::StatusOr<Reply> result;
    for (int i = 0; i <= fault.duplicates; ++i) {
      auto answer = std::make_shared<Answer<Reply>>();
      (line_.handler()->*method)(request, answer->MakeDone(answer));
      if (!fault.drop_reply) result = answer->Wait(deadline, line_.Context(name));
    }
    if (fault.drop_reply) return line_.Lost(name);
    return result;
  }

  Line line_;
};

absl::Status InProcessPsClient::Pull(const ps::PullRequest& request, absl::Duration timeout,
                                     PullSink sink) {
  const Deadline deadline(timeout);
  const CallFault fault = line_.Next("Pull");
  if (fault.drop_request) return line_.Lost("Pull");
  PP_ASSIGN_OR_RETURN(const GradientCodec* const chosen, FindWeightCodec(request.encoding()));
  absl::StatusOr<PullSnapshot> snapshot;
  for (int i = 0; i <= fault.duplicates; ++i) {
    auto answer = std::make_shared<Answer<PullSnapshot>>();
    const CancelFn cancel = line_.handler()->Pull(request, answer->MakeDone(answer));
    snapshot = answer->Wait(deadline, line_.Context("Pull"));
    if (absl::IsDeadlineExceeded(snapshot.status()) && cancel) cancel();
  }
  PP_RETURN_IF_ERROR(snapshot.status());
  ps::PullChunk header;
  header.set_epoch(snapshot->epoch);
  header.set_version(snapshot->version);
  header.set_shard(snapshot->shard);
  const int num_chunks = NumChunks(snapshot->payload.size_bytes / sizeof(float));
  for (int chunk = 0; chunk < num_chunks; ++chunk) {
    const Payload floats = ChunkOfSnapshot(*snapshot, chunk);
    const bool as_float32 =
        std::binary_search(request.float32_chunks().begin(), request.float32_chunks().end(), chunk);
    const GradientCodec* const codec = as_float32 ? &Float32Codec() : chosen;
    header.set_encoding(codec->encoding());
    const int64_t elements = floats.size_bytes / sizeof(float);
    std::string encoded(codec->EncodedBytes(elements), '\0');
    codec->Encode({reinterpret_cast<const float*>(floats.data), static_cast<size_t>(elements)},
                  encoded.data());
    const Payload payload{nullptr, encoded.data(), encoded.size()};
    header.set_chunk(chunk);
    header.set_crc32c(Crc32c(payload.data, payload.size_bytes));
    PP_ASSIGN_OR_RETURN(char* const out, sink(header, payload.size_bytes));
    if (payload.size_bytes > 0) std::memcpy(out, payload.data, payload.size_bytes);
    if (fault.damage && payload.size_bytes > 0) {
      out[payload.size_bytes / 2] ^= 1;
      ps::ErrorDetail detail;
      detail.set_kind(ps::ErrorDetail::BAD_CHECKSUM);
      return MakeError(detail, absl::StrCat(line_.Context("Pull"), ": chunk ", chunk,
                                            " was damaged in transit"));
    }
    if (fault.drop_reply) return line_.Lost("Pull");
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<PsClient> MakeInProcessPsClient(PsHandler* handler, const std::string& address,
                                                FaultHook hook) {
  return std::make_unique<InProcessPsClient>(handler, address, std::move(hook));
}

}  // namespace pushpull
