// SwitchHandler is a PsHandler that passes every call to another one, which may be replaced while
// calls come in. A server that listens before it can train keeps its port and its connections.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_SWITCH_HANDLER_H_
#define PUSHPULL_PS_SERVER_RUNTIME_SWITCH_HANDLER_H_

#include <atomic>

#include "common/wire/ps_handler.h"

namespace pushpull {

// Thread-safe. Every target must outlive the last call: a call may be inside an earlier target
// after Set has returned. Set must be called before the first call.
class SwitchHandler final : public PsHandler {
 public:
  void Set(PsHandler* target) { target_.store(target); }

#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof)         \
  void Name(const ps::Request& request, Done<ps::Reply> done) override { \
    target_.load()->Name(request, std::move(done));                      \
  }
  PUSHPULL_UNARY_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW

  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload) override {
    return target_.load()->PushChunk(header, payload);
  }
  CancelFn FinishPush(const ps::PushChunk& last, Done<ps::PushReply> done) override {
    return target_.load()->FinishPush(last, std::move(done));
  }
  CancelFn Pull(const ps::PullRequest& request, Done<PullSnapshot> done) override {
    return target_.load()->Pull(request, std::move(done));
  }
  void OpenSharedMemory(const ps::OpenSharedMemoryRequest& request,
                        Done<ps::OpenSharedMemoryReply> done) override {
    target_.load()->OpenSharedMemory(request, std::move(done));
  }

 private:
  std::atomic<PsHandler*> target_{nullptr};
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_SWITCH_HANDLER_H_
