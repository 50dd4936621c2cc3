#include "common/wire/grpc/steady_timers.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <limits>

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

int64_t Nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

// Remembers how far the wall clock is ahead of the steady clock, before and after somebody set it.
class ClockDistance {
 public:
  // Notes the present distance. Returns whether the wall clock was set within the last ten seconds;
  // then *before is the distance until that moment. Both arguments are in nanoseconds.
  bool WasSet(int64_t distance, int64_t steady_now, int64_t* before) {
    const int64_t last = last_.exchange(distance, std::memory_order_relaxed);
    if (last != 0 && std::abs(distance - last) > kStep) {
      before_.store(last, std::memory_order_relaxed);
      set_at_.store(steady_now, std::memory_order_relaxed);
    }
    *before = before_.load(std::memory_order_relaxed);
    return *before != 0 && steady_now - set_at_.load(std::memory_order_relaxed) < kRecently;
  }

 private:
  // More than slewing or the time between two reads of the clocks; less than a step that matters.
  static constexpr int64_t kStep = 100'000'000;
  // Longer than a thread is preempted between making a timeout and waiting for it.
  static constexpr int64_t kRecently = 10'000'000'000;

  std::atomic<int64_t> last_{0};
  std::atomic<int64_t> before_{0};
  std::atomic<int64_t> set_at_{0};
};

// Returns the time on the steady clock that is as far away as `timeout` is on the wall clock.
//
// The caller computed `timeout` from a duration a moment ago, but which wall clock did it read?
// gRPC asks the kernel. Abseil extrapolates from the last time that it asked, so for up to two
// seconds after the clock was set it still tells the old time. And the clock may have been set in
// that very moment. So `timeout` is compared with all these times, and the nearest result that is
// not over counts: callers repeat a wait that ends too early, but nothing repairs one that ends an
// hour too late.
timespec SteadyPoint(KernelTimeout timeout) {
  static ClockDistance distance;
  const int64_t wanted = absl::ToUnixNanos(absl::TimeFromTimespec(timeout.MakeAbsTimespec()));
  const int64_t now = Nanoseconds(CLOCK_MONOTONIC);
  const int64_t of_kernel = Nanoseconds(CLOCK_REALTIME) - now;
  int64_t end = std::numeric_limits<int64_t>::max();
  const auto consider = [&](int64_t distance_of_clock) {
    if (const int64_t point = wanted - distance_of_clock; point > now) end = std::min(end, point);
  };
  consider(of_kernel);
  consider(absl::GetCurrentTimeNanos() - now);
  int64_t before = 0;
  if (distance.WasSet(of_kernel, now, &before)) consider(before);
  if (end == std::numeric_limits<int64_t>::max()) end = now;
  return absl::ToTimespec(absl::Nanoseconds(end));
}

// Returns the same point for the same timeout of a thread. Abseil waits again with the timeout that
// it has whenever a thread was woken and finds its condition still false, and by then the wall
// clock may have been set many times.
timespec RememberedSteadyPoint(KernelTimeout timeout) {
  thread_local timespec last_timeout = {};
  thread_local timespec last_point = {};
  const timespec wanted = timeout.MakeAbsTimespec();
  if (wanted.tv_sec != last_timeout.tv_sec || wanted.tv_nsec != last_timeout.tv_nsec) {
    last_timeout = wanted;
    last_point = SteadyPoint(timeout);
  }
  return last_point;
}

bool Wait(KernelTimeout timeout) {
  std::atomic<int32_t>* const semaphore =
      SemaphoreOf(absl::synchronization_internal::GetOrCreateCurrentThreadIdentity());
  if (TryTake(semaphore)) return true;
  timespec end;
  if (timeout.has_timeout()) end = RememberedSteadyPoint(timeout);
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
