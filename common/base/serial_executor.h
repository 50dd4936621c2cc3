// Runs functions in order on one background thread.
#ifndef PUSHPULL_COMMON_BASE_SERIAL_EXECUTOR_H_
#define PUSHPULL_COMMON_BASE_SERIAL_EXECUTOR_H_

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace pushpull {

// Run is thread-safe.
class SerialExecutor {
 public:
  SerialExecutor();
  ~SerialExecutor() { Stop(); }
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  // Queues `work` and returns; blocks on a short lock only. The queue has no limit. Once Stop has
  // returned, `work` is dropped.
  void Run(std::function<void()> work);
  // Blocks until every queued function has run, and ends the thread. May be called again, but not
  // by two threads at once.
  void Stop();

 private:
  void RunThread();

  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // the thread runs nothing any more
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_SERIAL_EXECUTOR_H_
