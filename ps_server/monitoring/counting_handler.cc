#include "ps_server/monitoring/counting_handler.h"

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/model/sharding.h"
#include "common/wire/gradient_codec.h"

namespace pushpull {
namespace {

// Returns `payload` with a new owner that records the time since `start` when it is released.
Payload TimedPayload(Payload payload, std::shared_ptr<RequestCounters> counters,
                     absl::Duration start) {
  const void* const address = payload.owner.get();
  payload.owner = std::shared_ptr<const void>(
      address, [owner = std::move(payload.owner), counters = std::move(counters),
                start](const void*) mutable {
        owner.reset();
        counters->ObservePull(counters->Now() - start);
      });
  return payload;
}

// How a pull's weights are sent, as its request says.
struct PullEncoding {
  explicit PullEncoding(const ps::PullRequest& request)
      : encoding(request.encoding()),
        float32_chunks(request.float32_chunks().begin(), request.float32_chunks().end()) {}

  // Returns the size of all chunks of `snapshot` as they are sent.
  uint64_t BytesOf(const PullSnapshot& snapshot) const {
    const absl::StatusOr<const GradientCodec*> codec = FindWeightCodec(encoding);
    if (!codec.ok() || (*codec)->is_float32()) return snapshot.payload.size_bytes;
    const auto elements = static_cast<int64_t>(snapshot.payload.size_bytes / sizeof(float));
    int64_t bytes = 0;
    auto float32 = float32_chunks.begin();
    for (int chunk = 0; chunk < NumChunks(elements); ++chunk) {
      const int64_t size = ChunkRange(elements, chunk).size();
      const bool is_float32 = float32 != float32_chunks.end() && *float32 == uint32_t(chunk);
      if (is_float32) ++float32;
      bytes += (is_float32 ? &Float32Codec() : *codec)->EncodedBytes(size);
    }
    return static_cast<uint64_t>(bytes);
  }

  ps::GradientEncoding encoding;
  std::vector<uint32_t> float32_chunks;  // in rising order
};

}  // namespace

CountingHandler::CountingHandler(PsHandler* inner, std::shared_ptr<RequestCounters> counters)
    : inner_(inner), counters_(std::move(counters)) {}

template <typename Request, typename Reply>
PsHandler::Done<Reply> CountingHandler::Counted(PsMethod method, const Request& request,
                                                Done<Reply> done) {
  constexpr bool kIsCommit = std::is_same_v<Request, ps::CommitRequest>;
  uint64_t step = 0;
  if constexpr (kIsCommit) step = request.key().step();
  return [counters = counters_, method, step, done = std::move(done)](absl::StatusOr<Reply> reply) {
    counters->CountCall(method, reply.status().code());
    if constexpr (kIsCommit) {
      if (reply.ok() && reply->outcome() == ps::PushReply::ACCEPTED) {
        counters->NoteContribution(step);
      }
    }
    done(std::move(reply));
  };
}

#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof)                 \
  void CountingHandler::Name(const ps::Request& request, Done<ps::Reply> done) { \
    inner_->Name(request, Counted(PsMethod::k##Name, request, std::move(done))); \
  }
PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

absl::Status CountingHandler::PushChunk(const ps::PushChunk& header, const Payload& payload) {
  counters_->CountPushedBytes(payload.size_bytes);
  absl::Status status = inner_->PushChunk(header, payload);
  if (!status.ok()) counters_->CountCall(PsMethod::kPush, status.code());
  return status;
}

CancelFn CountingHandler::FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) {
  return inner_->FinishPush(
      last, [counters = counters_, start = counters_->Now(), step = last.key().step(),
             done = std::move(done)](absl::StatusOr<ps::PushReply> reply) {
        counters->CountCall(PsMethod::kPush, reply.status().code());
        counters->ObservePush(counters->Now() - start);
        if (reply.ok() && reply->outcome() == ps::PushReply::ACCEPTED &&
            reply->level() == ps::COMMITTED) {
          counters->NoteContribution(step);
        }
        done(std::move(reply));
      });
}

CancelFn CountingHandler::Pull(const ps::PullRequest& request, Done<PullSnapshot> done) {
  return inner_->Pull(
      request, [counters = counters_, start = counters_->Now(), encoding = PullEncoding(request),
                done = std::move(done)](absl::StatusOr<PullSnapshot> snapshot) {
        counters->CountCall(PsMethod::kPull, snapshot.status().code());
        if (snapshot.ok()) {
          counters->ObservePullWait(counters->Now() - start);
          counters->CountPull(snapshot->version, encoding.BytesOf(*snapshot));
          snapshot->payload = TimedPayload(std::move(snapshot->payload), counters, start);
        }
        done(std::move(snapshot));
      });
}

void CountingHandler::OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                                       Done<ps::OpenSharedMemoryReply> done) {
  inner_->OpenSharedMemory(request, Counted(PsMethod::kOpenSharedMemory, request, std::move(done)));
}

}  // namespace pushpull
