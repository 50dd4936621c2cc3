// Asynchronous mode: the pushes that are committed and wait to be applied, in commit order. While a
// step is decided, the front one is being applied. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_PUSH_QUEUE_H_
#define PUSHPULL_PS_SERVER_CORE_PUSH_QUEUE_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/functional/function_ref.h"

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_events.h"

namespace pushpull {

class PushQueue {
 public:
  bool empty() const { return pushes_.empty(); }
  const ps::CommitRequest& front() const { return pushes_.front().request; }
  // Returns whether a push of the replica waits or is being applied.
  bool Has(uint32_t replica) const;

  // Appends a push. `call` is the Commit call to answer once it is applied.
  void Add(CallId call, const ps::CommitRequest& request);
  // If the same push (replica, grant and number) is here, its answer goes to `call` too. Returns
  // false if it is not.
  bool Join(CallId call, const ps::PushKey& key);
  void Cancel(CallId call);

  // The functions below remove pushes and return their calls, which the caller has to answer.
  std::vector<CallId> PopFront();
  // Removes the pushes of the replicas that `of` names, from the index `first` on.
  std::vector<CallId> Remove(size_t first, absl::FunctionRef<bool(uint32_t replica)> of);
  std::vector<CallId> RemoveAll();

 private:
  struct Push {
    std::vector<CallId> calls;  // several if the clone repeated the call
    ps::CommitRequest request;
  };
  std::deque<Push> pushes_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_PUSH_QUEUE_H_
