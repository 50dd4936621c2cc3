// Timed waits on the machine's steady clock. Every timed wait of the product goes through this
// header (scripts/check_layers.sh): those of Abseil and of std::condition_variable with a system
// clock end by the wall clock, and somebody who sets the date back by an hour makes them an hour
// longer.
#ifndef PUSHPULL_COMMON_MONOTONIC_WAIT_H_
#define PUSHPULL_COMMON_MONOTONIC_WAIT_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace pushpull {

// A point in steady time. A value; reading it is thread-safe.
class Deadline {
 public:
  // `timeout` from now; absl::InfiniteDuration(): never.
  explicit Deadline(absl::Duration timeout);

  // The time that is left, never negative.
  absl::Duration Left() const;
  bool HasPassed() const { return Left() == absl::ZeroDuration(); }

 private:
  absl::Duration at_;
};

// A condition variable for an absl::Mutex. Every wait on one object uses the same mutex. Whoever
// makes a condition true that somebody waits for calls NotifyAll before it unlocks that mutex; the
// waiter may then destroy the object as soon as its wait returns.
class MonotonicCondVar {
 public:
  MonotonicCondVar() = default;
  MonotonicCondVar(const MonotonicCondVar&) = delete;
  MonotonicCondVar& operator=(const MonotonicCondVar&) = delete;

  // Blocks until `condition()` is true, for at most `timeout` (negative: not at all; infinite:
  // without limit). Unlocks `mutex` while it blocks. `condition` is called with the mutex held.
  // Returns whether the condition is true now.
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
  // Returns after NotifyAll, after `timeout` (positive) or for no reason.
  void Wait(absl::Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  // Locked after the caller's mutex and never held while that one is locked. A waiter locks it
  // before it unlocks the caller's mutex, so a notification that follows the caller's last look at
  // its condition finds the waiter waiting.
  std::mutex entry_;
  std::condition_variable changed_;
};

// A flag that is raised once, for threads that work in a rhythm until they are told to stop.
// Thread-safe.
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

#endif  // PUSHPULL_COMMON_MONOTONIC_WAIT_H_
