// Makes sure that a call is ended only once. The handler's answer, the peer's cancellation and a
// server's deadline may all try to, on any thread, and the reactor deletes itself after it has been
// finished.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_FINISH_ONCE_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_FINISH_ONCE_H_

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace pushpull {

// Shared by the reactor and the callbacks that it gave away, which may run after the reactor is
// gone. Thread-safe.
template <typename Reactor>
class FinishOnce {
 public:
  explicit FinishOnce(Reactor* reactor) : reactor_(reactor) {}

  // Returns the reactor to the first caller, who must finish it, and null to all later callers.
  Reactor* Claim() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(reactor_, nullptr);
  }

 private:
  absl::Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_FINISH_ONCE_H_
