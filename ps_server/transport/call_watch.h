// Ends the calls of a server that make no progress. These deadlines are the server's; they apply
// whatever deadline the client has set.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_CALL_WATCH_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_CALL_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/wire/grpc/server_limits.h"

namespace pushpull {

// Thread-safe. It has no thread: the owner calls Sweep.
class CallWatch {
 public:
  using CallNumber = uint64_t;

  // clock must outlive this object.
  CallWatch(const ServerLimits& limits, const Clock* clock) : limits_(limits), clock_(clock) {}

  // Starts monitoring a call. Sweep calls `expire` once, when the call has neither been extended
  // nor removed for `patience`, at the latest limits.longest_call after Add. `expire` must not call
  // Remove for this call: Remove waits for it.
  CallNumber Add(absl::Duration patience, std::function<void()> expire);
  // The call has made progress: gives it `patience` from now, but never more than
  // limits.longest_call since Add. Does nothing for a call that has been removed.
  void Extend(CallNumber call, absl::Duration patience);
  // Stops monitoring the call. Blocks while its `expire` runs; afterwards `expire` is never called.
  void Remove(CallNumber call);

  // Runs `expire` of all calls that are due, one after the other. Call it regularly, always from
  // the same thread.
  void Sweep();

  size_t size() const;
  const ServerLimits& limits() const { return limits_; }

 private:
  struct Entry {
    absl::Duration due;   // steady time at which the call expires
    absl::Duration last;  // latest value of `due`
    std::function<void()> expire;
  };

  void Expire(CallNumber call, absl::Duration now);

  const ServerLimits limits_;
  const Clock* const clock_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<CallNumber, Entry> calls_ ABSL_GUARDED_BY(mutex_);
  CallNumber last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  CallNumber expiring_ ABSL_GUARDED_BY(mutex_) = 0;  // the call whose expire runs now; 0: none
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_CALL_WATCH_H_
