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
  // Blocks until every queued function has run.
  ~SerialExecutor();
  SerialExecutor(const SerialExecutor&) = delete;
  SerialExecutor& operator=(const SerialExecutor&) = delete;

  // Queues `work` and returns; blocks on a short lock only. The queue has no limit.
  void Run(std::function<void()> work);

 private:
  void RunThread();

  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_SERIAL_EXECUTOR_H_
