// Ends calls that show no progress: the server's own deadlines, which hold whatever the peer asked
// for.
#ifndef PUSHPULL_COMMON_RPC_CALL_WATCH_H_
#define PUSHPULL_COMMON_RPC_CALL_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/clock.h"
#include "common/rpc/server_limits.h"

namespace pushpull {

// Thread-safe.
class CallWatch {
 public:
  using CallNumber = uint64_t;

  // clock must outlive the watch.
  CallWatch(const ServerLimits& limits, const Clock* clock) : limits_(limits), clock_(clock) {}

  // expire is called once by Sweep when `patience` has passed since the last word of the call. It
  // must not Remove the call itself. After Remove it is not running and never called.
  CallNumber Add(absl::Duration patience, std::function<void()> expire);
  // The call goes on: from now it has so long again, but never more than limits.longest_call in
  // all.
  void Extend(CallNumber call, absl::Duration patience);
  void Remove(CallNumber call);

  // To be called every now and then, by one thread.
  void Sweep();

  size_t size() const;
  const ServerLimits& limits() const { return limits_; }

 private:
  struct Entry {
    absl::Duration due;   // steady time
    absl::Duration last;  // no later than this
    std::function<void()> expire;
  };

  void Expire(CallNumber call, absl::Duration now);

  const ServerLimits limits_;
  const Clock* const clock_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<CallNumber, Entry> calls_ ABSL_GUARDED_BY(mutex_);
  CallNumber last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  CallNumber expiring_ ABSL_GUARDED_BY(mutex_) = 0;  // whose expire runs now; 0: nobody's
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_CALL_WATCH_H_
