// Timed waits on the machine's steady clock. All product code uses this header for timed waits;
// scripts/check_layers.sh enforces it. Abseil's timed waits, and those of std::condition_variable
// on a system clock, end by the wall clock: setting the date back by an hour would make them an
// hour longer.
#ifndef PUSHPULL_COMMON_BASE_MONOTONIC_WAIT_H_
#define PUSHPULL_COMMON_BASE_MONOTONIC_WAIT_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace pushpull {

// A point in steady time. A copyable value; const methods are thread-safe.
class Deadline {
 public:
  // Passes `timeout` from now, or never for absl::InfiniteDuration().
  explicit Deadline(absl::Duration timeout);

  // Returns the time that is left, never negative.
  absl::Duration Left() const;
  bool HasPassed() const { return Left() == absl::ZeroDuration(); }

 private:
  absl::Duration at_;
};

// A condition variable for an absl::Mutex. All waits on one object must use the same mutex.
//
// The thread that makes an awaited condition true must call NotifyAll before it unlocks that mutex.
// In return, the waiter may destroy the object as soon as its wait returns.
class MonotonicCondVar {
 public:
  MonotonicCondVar() = default;
  MonotonicCondVar(const MonotonicCondVar&) = delete;
  MonotonicCondVar& operator=(const MonotonicCondVar&) = delete;

  // Blocks until `condition()` is true, for at most `timeout`. A negative timeout does not block,
  // an infinite one sets no limit. Unlocks `mutex` while it blocks; calls `condition` with the
  // mutex held. Returns whether the condition is true now.
  template <typename Condition>
  bool Await(absl::Mutex* mutex, const Condition& condition, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const Deadline deadline(timeout);
    while (!condition()) {
      const absl::Duration left = deadline.Left();
      if (left == absl::ZeroDuration()) return false;
      Wait(mutex, left);
    }
    return true;
  }

  void NotifyAll();

 private:
  // Returns after NotifyAll, after `timeout` (> 0), or spuriously.
  void Wait(absl::Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Lock order: the caller's mutex first, then entry_. A waiter locks entry_ before it unlocks the
  // caller's mutex, so a notification cannot fall between the waiter's last test of its condition
  // and its wait. It unlocks entry_ before it locks the caller's mutex again.
  std::mutex entry_;
  std::condition_variable changed_;
};

// A flag that is raised once. It stops threads that work periodically: they wait on it between two
// iterations. Thread-safe.
class StopFlag {
 public:
  void Raise();
  // Blocks until the flag is raised, for at most `timeout`. Returns whether it is raised.
  bool WaitFor(absl::Duration timeout);

 private:
  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool raised_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_MONOTONIC_WAIT_H_
