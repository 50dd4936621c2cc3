#include "common/base/thread_pool.h"

#include "glog/logging.h"

namespace pushpull {

namespace {

// About 20 us: longer than the gap between two loops of a training step, much shorter than a
// scheduler's time slice.
constexpr int kSpins = 1000;

// Tells the CPU that this thread waits in a loop.
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <typename Done>
bool Spin(Done done) {
  for (int i = 0; i < kSpins; ++i) {
    if (done()) return true;
    Pause();
  }
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  CHECK_GE(num_threads, 1);
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { RunThread(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    generation_.fetch_add(1, std::memory_order_release);
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Work(Loop* loop, int thread) {
  for (;;) {
    // On x86 this is a locked instruction, which waits for all earlier stores of the thread, also
    // for those that bypass the caches. An ordinary store, even a releasing one, would overtake
    // these.
    const int64_t i = loop->next.fetch_add(1, std::memory_order_relaxed);
    if (i >= loop->count) return;
    loop->body(i, thread);
  }
}

void ThreadPool::RunThread(int thread) {
  uint64_t seen = 0;
  for (;;) {
    const auto changed = [&] { return generation_.load(std::memory_order_acquire) != seen; };
    Spin(changed);
    Loop* loop;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      work_.wait(lock, changed);
      if (stop_) return;
      seen = generation_.load(std::memory_order_relaxed);
      loop = loop_;
      if (loop == nullptr) continue;  // the loop ended before this thread joined it
      loop->running.fetch_add(1, std::memory_order_relaxed);
    }
    Work(loop, thread);
    // The mutex keeps the wakeup from falling between the caller's test and its sleep. The caller
    // may destroy the loop as soon as the mutex is unlocked.
    const std::lock_guard<std::mutex> lock(mutex_);
    if (loop->running.fetch_sub(1, std::memory_order_release) == 1) idle_.notify_one();
  }
}

void ThreadPool::ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body) {
  ParallelFor(count, [body](int64_t i, int) { body(i); });
}

void ThreadPool::ParallelFor(int64_t count, absl::FunctionRef<void(int64_t, int)> body) {
  if (count <= 0) return;
  if (threads_.empty() || count == 1) {
    for (int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  const std::lock_guard<std::mutex> serialize(loop_mutex_);
  Loop loop(count, body);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    loop_ = &loop;
    generation_.fetch_add(1, std::memory_order_release);
  }
  work_.notify_all();  // makes no system call if no thread sleeps
  Work(&loop, 0);
  const auto idle = [&loop] { return loop.running.load(std::memory_order_acquire) == 0; };
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    loop_ = nullptr;  // a thread that has not joined the loop by now must not join it
    if (idle()) return;
  }
  Spin(idle);
  // Needed even if the loop is idle by now: the last thread holds the mutex when it sets `running`
  // to 0, and must have unlocked it before the loop is destroyed.
  std::unique_lock<std::mutex> lock(mutex_);
  idle_.wait(lock, idle);
}

}  // namespace pushpull
