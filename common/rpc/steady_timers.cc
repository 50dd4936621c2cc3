#include "common/rpc/steady_timers.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
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

// A thread's semaphore is the first word of its waiter: AbslInternalPerThreadSemPost, which stays
// Abseil's, adds one to it and wakes who sleeps on the word.
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

// How far the wall clock is ahead of the steady one, before and after it was last set.
class ClockDistance {
 public:
  // Notes the distance at `steady_nanoseconds`. True: the clock was set within the last seconds,
  // and *before is what the distance was until then.
  bool WasSet(int64_t distance, int64_t steady_nanoseconds, int64_t* before) {
    const int64_t last = last_.exchange(distance, std::memory_order_relaxed);
    if (last != 0 && std::abs(distance - last) > kStep) {
      before_.store(last, std::memory_order_relaxed);
      set_at_.store(steady_nanoseconds, std::memory_order_relaxed);
    }
    *before = before_.load(std::memory_order_relaxed);
    return *before != 0 && steady_nanoseconds - set_at_.load(std::memory_order_relaxed) < kRecently;
  }

 private:
  static constexpr int64_t kStep = 100'000'000;  // more than slewing or a pause between reads
  static constexpr int64_t kRecently =
      2'000'000'000;  // longer than a thread stays off the processor

  std::atomic<int64_t> last_{0};
  std::atomic<int64_t> before_{0};
  std::atomic<int64_t> set_at_{0};
};

int64_t SteadyNanoseconds() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// The point of the steady clock that is as far away as `timeout` is by the wall clock. The caller
// has made `timeout` a moment ago from a time to wait. If the wall clock was set at that moment,
// the timeout may be of the clock before: then the nearer of both points counts, since a wait that
// ends too early is repeated, and one that ends an hour late is not noticed.
timespec SteadyPoint(KernelTimeout timeout) {
  static ClockDistance distance;
  const int64_t wanted = absl::ToUnixNanos(absl::TimeFromTimespec(timeout.MakeAbsTimespec()));
  const int64_t steady = SteadyNanoseconds();
  const int64_t now_distance = absl::GetCurrentTimeNanos() - steady;
  int64_t point = std::max(wanted - now_distance, steady);
  int64_t before = 0;
  if (distance.WasSet(now_distance, steady, &before)) {
    if (const int64_t other = wanted - before; other > steady) point = std::min(point, other);
  }
  return absl::ToTimespec(absl::Nanoseconds(point));
}

bool Wait(KernelTimeout timeout) {
  std::atomic<int32_t>* const semaphore =
      SemaphoreOf(absl::synchronization_internal::GetOrCreateCurrentThreadIdentity());
  if (TryTake(semaphore)) return true;
  timespec end;
  if (timeout.has_timeout()) end = SteadyPoint(timeout);
  for (;;) {
    // Without FUTEX_CLOCK_REALTIME the point belongs to CLOCK_MONOTONIC, as std::chrono's does.
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
