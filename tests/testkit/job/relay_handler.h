// Forwards calls of in-process clients to a server that tests may kill and restart.
#ifndef PUSHPULL_TESTS_TESTKIT_JOB_RELAY_HANDLER_H_
#define PUSHPULL_TESTS_TESTKIT_JOB_RELAY_HANDLER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

#include "common/wire/ps_handler.h"
#include "tests/testkit/job/contribution_audit.h"

namespace pushpull {

// Thread-safe. Without a target every call fails with UNAVAILABLE, as over a refused connection.
class RelayHandler final : public PsHandler {
 public:
  // `audit` observes the calls and must outlive them. May be null.
  explicit RelayHandler(ContributionAudit* audit = nullptr) : audit_(audit) {}

  void Connect(PsHandler* target);
  // Fails all running calls with UNAVAILABLE. Once it returns, no call is inside the target.
  void Disconnect();

  PUSHPULL_DECLARE_HANDLER_FUNCTIONS

 private:
  // For each call that waits for an answer, by number: a function that fails it.
  struct Waiting {
    absl::Mutex mutex;
    uint64_t last = 0;
    std::map<uint64_t, std::function<void()>> calls;
  };

  // Returns a `done` that answers only once, either for the target or for Disconnect.
  template <typename Reply>
  Done<Reply> Guard(Done<Reply> done);
  CancelFn GuardCancel(CancelFn cancel) ABSL_SHARED_LOCKS_REQUIRED(gate_);
  // Returns `done`, or a callback that also tells the audit of the answer to a commit.
  template <typename Request, typename Reply>
  Done<Reply> Audited(const Request& request, Done<Reply> done);
  template <typename Request, typename Reply>
  void Forward(void (PsHandler::*method)(const Request&, Done<Reply>), const Request& request,
               Done<Reply> done);

  ContributionAudit* const audit_;
  absl::Mutex gate_;  // shared while a call is being handed over
  PsHandler* target_ ABSL_GUARDED_BY(gate_) = nullptr;
  uint64_t connection_ ABSL_GUARDED_BY(gate_) = 0;
  const std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_JOB_RELAY_HANDLER_H_
