// An absl::Mutex made of pthread primitives, which is linked into programs that run under
// ThreadSanitizer. Debian's Abseil is built without the sanitizer, which then sees none of its
// locks and reports races in the data that they guard. The linker redirects our calls here
// (cmake/thread_sanitizer.cmake); calls inside the libraries are not redirected.
#include "absl/synchronization/mutex.h"

#include <pthread.h>

#include <atomic>
#include <ctime>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace {

struct Implementation {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
};

// A pointer takes the place of the mutex's only word, which is zero at first.
static_assert(sizeof(absl::Mutex) == sizeof(std::atomic<Implementation*>));

std::atomic<Implementation*>& PlaceOf(absl::Mutex* mutex) {
  return *reinterpret_cast<std::atomic<Implementation*>*>(mutex);
}

Implementation* Of(absl::Mutex* mutex) {
  std::atomic<Implementation*>& place = PlaceOf(mutex);
  Implementation* found = place.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  auto* const made = new Implementation;
  if (place.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made;
  delete made;
  return found;
}

void Lock(absl::Mutex* mutex) { pthread_mutex_lock(&Of(mutex)->mutex); }

// Wakes all waiters; each checks its condition itself.
void Unlock(absl::Mutex* mutex) {
  Implementation* const implementation = Of(mutex);
  pthread_cond_broadcast(&implementation->changed);
  pthread_mutex_unlock(&implementation->mutex);
}

bool AwaitUntil(absl::Mutex* mutex, const absl::Condition& condition, absl::Time deadline) {
  Implementation* const implementation = Of(mutex);
  pthread_cond_broadcast(&implementation->changed);
  while (!condition.Eval()) {
    if (deadline == absl::InfiniteFuture()) {
      pthread_cond_wait(&implementation->changed, &implementation->mutex);
      continue;
    }
    if (absl::Now() >= deadline) return false;
    const timespec until = absl::ToTimespec(deadline);
    pthread_cond_timedwait(&implementation->changed, &implementation->mutex, &until);
  }
  return true;
}

}  // namespace

// The mangled names of the members in the Abseil namespace of Debian 12.
extern "C" {
// Suppresses a report about glog, which accesses the time zone under a lock that the sanitizer does
// not see.
const char* __tsan_default_suppressions() { return "race:tzset_internal\n"; }

void __wrap__ZN4absl7debian35Mutex4LockEv(absl::Mutex* mutex) { Lock(mutex); }
void __wrap__ZN4absl7debian35Mutex10ReaderLockEv(absl::Mutex* mutex) { Lock(mutex); }
void __wrap__ZN4absl7debian35Mutex6UnlockEv(absl::Mutex* mutex) { Unlock(mutex); }
void __wrap__ZN4absl7debian35Mutex12ReaderUnlockEv(absl::Mutex* mutex) { Unlock(mutex); }
void __wrap__ZN4absl7debian35Mutex5AwaitERKNS0_9ConditionE(absl::Mutex* mutex,
                                                           const absl::Condition& condition) {
  AwaitUntil(mutex, condition, absl::InfiniteFuture());
}
bool __wrap__ZN4absl7debian35Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Duration timeout) {
  return AwaitUntil(mutex, condition, absl::Now() + timeout);
}
bool __wrap__ZN4absl7debian35Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE(
    absl::Mutex* mutex, const absl::Condition& condition, absl::Time deadline) {
  return AwaitUntil(mutex, condition, deadline);
}
void __wrap__ZN4absl7debian35MutexD1Ev(absl::Mutex* mutex) {
  delete PlaceOf(mutex).exchange(nullptr);
}
}
