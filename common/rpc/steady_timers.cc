#include "common/rpc/steady_timers.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>

#include "absl/synchronization/internal/create_thread_identity.h"
#include "absl/synchronization/internal/kernel_timeout.h"
#include "absl/synchronization/internal/per_thread_sem.h"
#include "absl/synchronization/internal/waiter.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace pushpull {
namespace {

using absl::base_internal::ThreadIdentity;
using absl::synchronization_internal::KernelTimeout;

// A thread's semaphore is the first word of its waiter. AbslInternalPerThreadSemPost, which is not
// replaced, increments that word and wakes the thread that sleeps on it.
static_assert(ABSL_WAITER_MODE == ABSL_WAITER_MODE_FUTEX);
static_assert(sizeof(std::atomic<int32_t>) == sizeof(int32_t));

std::atomic<int32_t>* SemaphoreOf(ThreadIdentity* identity) {
  return reinterpret_cast<std::atomic<int32_t>*>(identity->waiter_state.data);
}

bool TryTake(std::atomic<int32_t>* semaphore) {
  int32_t count = semaphore->load(std::memory_order_relaxed);
  while (count != 0) {
    if (semaphore->compare_exchange_weak(count, count - 1, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

// The time on the steady clock that is as far away as `timeout` is on the wall clock. The caller
// has computed `timeout` a moment ago from a duration, so the date has hardly been changed in
// between.
timespec SteadyPoint(KernelTimeout timeout) {
  const absl::Duration left = absl::TimeFromTimespec(timeout.MakeAbsTimespec()) - absl::Now();
  const absl::Duration now = absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  return absl::ToTimespec(now + std::max(left, absl::ZeroDuration()));
}

bool Wait(KernelTimeout timeout) {
  std::atomic<int32_t>* const semaphore =
      SemaphoreOf(absl::synchronization_internal::GetOrCreateCurrentThreadIdentity());
  if (TryTake(semaphore)) return true;
  timespec end;
  if (timeout.has_timeout()) end = SteadyPoint(timeout);
  for (;;) {
    // Without FUTEX_CLOCK_REALTIME the kernel takes `end` as CLOCK_MONOTONIC, the clock of
    // std::chrono::steady_clock.
    const int64_t result =
        syscall(SYS_futex, semaphore, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, 0,
                timeout.has_timeout() ? &end : nullptr, nullptr, FUTEX_BITSET_MATCH_ANY);
    const int error = result == 0 ? 0 : errno;
    if (TryTake(semaphore)) return true;
    if (error == ETIMEDOUT) return false;
  }
}

}  // namespace

void UseSteadyTimers() {}

}  // namespace pushpull

extern "C" bool ABSL_INTERNAL_C_SYMBOL(AbslInternalPerThreadSemWait)(
    absl::synchronization_internal::KernelTimeout timeout) {
  return pushpull::Wait(timeout);
}
