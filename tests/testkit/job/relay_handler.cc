#include "tests/testkit/job/relay_handler.h"

#include <type_traits>
#include <utility>

namespace pushpull {
namespace {

absl::Status Gone() { return absl::UnavailableError("connection refused"); }

}  // namespace

void RelayHandler::Connect(PsHandler* target) {
  absl::MutexLock lock(&gate_);
  target_ = target;
  ++connection_;
}

void RelayHandler::Disconnect() {
  {
    absl::MutexLock lock(&gate_);
    target_ = nullptr;
    ++connection_;
  }
  std::map<uint64_t, std::function<void()>> calls;
  {
    absl::MutexLock lock(&waiting_->mutex);
    calls.swap(waiting_->calls);
  }
  for (const auto& [number, fail] : calls) fail();
}

template <typename Reply>
PsHandler::Done<Reply> RelayHandler::Guard(Done<Reply> done) {
  uint64_t number;
  {
    absl::MutexLock lock(&waiting_->mutex);
    number = ++waiting_->last;
    waiting_->calls[number] = [done] { done(Gone()); };
  }
  return [waiting = waiting_, number, done = std::move(done)](absl::StatusOr<Reply> reply) {
    {
      absl::MutexLock lock(&waiting->mutex);
      if (waiting->calls.erase(number) == 0) return;
    }
    done(std::move(reply));
  };
}

CancelFn RelayHandler::GuardCancel(CancelFn cancel) {
  return [this, connection = connection_, cancel = std::move(cancel)] {
    absl::ReaderMutexLock lock(&gate_);
    if (connection == connection_ && cancel) cancel();
  };
}

template <typename Request, typename Reply>
void RelayHandler::Forward(void (PsHandler::*method)(const Request&, Done<Reply>),
                           const Request& request, Done<Reply> done) {
  absl::ReaderMutexLock lock(&gate_);
  if (target_ == nullptr) return done(Gone());
  (target_->*method)(request, Guard<Reply>(std::move(done)));
}

template <typename Request, typename Reply>
PsHandler::Done<Reply> RelayHandler::Audited(const Request& request, Done<Reply> done) {
  if constexpr (std::is_same_v<Request, ps::CommitRequest>) {
    if (audit_ != nullptr) {
      return [audit = audit_, key = request.key(),
              done = std::move(done)](absl::StatusOr<Reply> reply) {
        if (reply.ok()) audit->NoteOutcome(key, reply->outcome());
        done(std::move(reply));
      };
    }
  }
  return done;
}

#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof)              \
  void RelayHandler::Name(const ps::Request& request, Done<ps::Reply> done) { \
    Forward(&PsHandler::Name, request, Audited(request, std::move(done)));    \
  }
PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

absl::Status RelayHandler::PushChunk(const ps::PushChunk& header, const Payload& payload) {
  absl::ReaderMutexLock lock(&gate_);
  if (target_ == nullptr) return Gone();
  if (audit_ != nullptr) audit_->NoteChunk(header, payload);
  return target_->PushChunk(header, payload);
}

CancelFn RelayHandler::FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) {
  if (audit_ != nullptr && last.has_commit()) {
    done = [audit = audit_, key = last.key(),
            done = std::move(done)](absl::StatusOr<ps::PushReply> reply) {
      if (reply.ok()) audit->NoteOutcome(key, reply->outcome());
      done(std::move(reply));
    };
  }
  absl::ReaderMutexLock lock(&gate_);
  if (target_ == nullptr) {
    done(Gone());
    return nullptr;
  }
  return GuardCancel(target_->FinishPush(last, Guard<ps::PushReply>(std::move(done))));
}

CancelFn RelayHandler::Pull(const ps::PullRequest& request, Done<PullSnapshot> done) {
  if (audit_ != nullptr) {
    done = [audit = audit_, encoding = request.encoding(),
            done = std::move(done)](absl::StatusOr<PullSnapshot> snapshot) {
      if (snapshot.ok()) audit->NotePull(*snapshot, encoding);
      done(std::move(snapshot));
    };
  }
  absl::ReaderMutexLock lock(&gate_);
  if (target_ == nullptr) {
    done(Gone());
    return nullptr;
  }
  return GuardCancel(target_->Pull(request, Guard<PullSnapshot>(std::move(done))));
}

void RelayHandler::OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                                    Done<ps::OpenSharedMemoryReply> done) {
  Forward(&PsHandler::OpenSharedMemory, request, std::move(done));
}
}  // namespace pushpull
