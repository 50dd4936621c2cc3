#include "worker/train/stop_switch.h"

#include <utility>

namespace pushpull {

void StopSwitch::Stop() {
  absl::MutexLock lock(&mutex_);
  stopped_ = true;
  for (const auto& stop : functions_) stop();
  functions_.clear();
}

void StopSwitch::Add(std::function<void()> stop) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) {
    stop();
  } else {
    functions_.push_back(std::move(stop));
  }
}

void StopSwitch::Clear() {
  absl::MutexLock lock(&mutex_);
  functions_.clear();
}

}  // namespace pushpull
