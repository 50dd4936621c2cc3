// Lets another thread, such as the one of StopSignal, stop the work in progress.
#ifndef PUSHPULL_WORKER_TRAIN_STOP_SWITCH_H_
#define PUSHPULL_WORKER_TRAIN_STOP_SWITCH_H_

#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace pushpull {

// Thread-safe. The functions run under the switch's lock, so they must not block or call the
// switch.
class StopSwitch {
 public:
  // Calls all functions that have been added. Functions that are added later run at once.
  void Stop();
  void Add(std::function<void()> stop);
  // Removes all functions. When it returns none of them is running, so the objects that they stop
  // may be destroyed.
  void Clear();

 private:
  absl::Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::function<void()>> functions_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_STOP_SWITCH_H_
