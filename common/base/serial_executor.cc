#include "common/base/serial_executor.h"

#include <utility>

namespace pushpull {

SerialExecutor::SerialExecutor() : thread_([this] { RunThread(); }) {}

void SerialExecutor::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void SerialExecutor::Run(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (!ended_) queue_.push_back(std::move(work));
}

void SerialExecutor::RunThread() {
  for (;;) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stop_ || !queue_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (queue_.empty()) {
        ended_ = true;
        return;
      }
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace pushpull
