// Tested by tests/ps_server/runtime/declaration_phase_test.cc.
#include "ps_server/runtime/not_ready_handler.h"

#include "common/wire/error_detail.h"

namespace pushpull {

absl::Status NotReadyHandler::NotReady() const {
  ps::ErrorDetail detail;
  detail.set_kind(ps::ErrorDetail::NOT_READY);
  return MakeError(detail, reason_);
}

#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof) \
  void NotReadyHandler::Name(const ps::Request&, Done<ps::Reply> done) { done(NotReady()); }
PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

absl::Status NotReadyHandler::PushChunk(const ps::PushChunk&, const Payload&) { return NotReady(); }

CancelFn NotReadyHandler::FinishPush(const ps::PushChunk&, Done<ps::PushReply> done) {
  done(NotReady());
  return nullptr;
}

CancelFn NotReadyHandler::Pull(const ps::PullRequest&, Done<PullSnapshot> done) {
  done(NotReady());
  return nullptr;
}

void NotReadyHandler::OpenSharedMemory(const ps::OpenSharedMemoryRequest&,
                                       Done<ps::OpenSharedMemoryReply> done) {
  done(NotReady());
}

}  // namespace pushpull
