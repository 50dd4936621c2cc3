#include "ps_server/monitoring/counting_handler.h"

#include <type_traits>
#include <utility>

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
  return inner_->Pull(request, [counters = counters_, start = counters_->Now(),
                                done = std::move(done)](absl::StatusOr<PullSnapshot> snapshot) {
    counters->CountCall(PsMethod::kPull, snapshot.status().code());
    if (snapshot.ok()) {
      counters->ObservePullWait(counters->Now() - start);
      counters->CountPull(snapshot->version, snapshot->payload.size_bytes);
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
