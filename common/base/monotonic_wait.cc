#include "common/base/monotonic_wait.h"

#include <algorithm>
#include <chrono>

namespace pushpull {
namespace {

// Longer waits are cut into pieces of this length, because adding a very long timeout to a
// time_point would overflow. Await repeats the wait until the condition or the deadline.
constexpr absl::Duration kLongestPiece = absl::Hours(24);

absl::Duration SteadyNow() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

Deadline::Deadline(absl::Duration timeout) : at_(SteadyNow() + timeout) {}

absl::Duration Deadline::Left() const { return std::max(at_ - SteadyNow(), absl::ZeroDuration()); }

void MonotonicCondVar::Wait(absl::Mutex* mutex, absl::Duration timeout) {
  {
    std::unique_lock<std::mutex> entered(entry_);
    mutex->Unlock();
    // libstdc++ waits for a steady time point with pthread_cond_clockwait(CLOCK_MONOTONIC).
    const auto piece = absl::ToChronoNanoseconds(std::min(timeout, kLongestPiece));
    changed_.wait_until(entered, std::chrono::steady_clock::now() + piece);
  }
  mutex->Lock();
}

void MonotonicCondVar::NotifyAll() {
  std::lock_guard<std::mutex> entered(entry_);
  changed_.notify_all();
}

void StopFlag::Raise() {
  absl::MutexLock lock(&mutex_);
  raised_ = true;
  changed_.NotifyAll();
}

bool StopFlag::WaitFor(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return changed_.Await(
      &mutex_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return raised_; }, timeout);
}

}  // namespace pushpull
