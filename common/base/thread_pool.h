// A fixed set of threads that runs one parallel loop at a time.
#ifndef PUSHPULL_COMMON_BASE_THREAD_POOL_H_
#define PUSHPULL_COMMON_BASE_THREAD_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace pushpull {

// Thread-safe: if several threads call ParallelFor, their loops run one after another. Loops of one
// iteration and all loops of a pool of one thread are the exception: they run at once on the
// calling thread, so those of two callers run side by side, both as thread 0. A thread without work
// spins for about 20 us before it sleeps, so loops in quick succession need no system calls.
class ThreadPool {
 public:
  // num_threads >= 1 includes the thread that calls ParallelFor: ThreadPool(1) starts no thread.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls body(i) for every i in [0, count) on the pool's threads and the calling thread, and
  // blocks until all calls have returned. Iterations are handed out in increasing order. `body`
  // must not call ParallelFor of the same pool. The caller and all later loops see what the calls
  // have stored, also by x86's stores that bypass the caches, which need no fence of their own.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body);
  // As above, but calls body(i, thread), where `thread` in [0, num_threads()) identifies the thread
  // that runs it; the calling thread is 0. Use it to give each thread a separate scratch buffer.
  // Which thread runs which iteration is unspecified.
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t, int)> body);

 private:
  struct Loop {
    Loop(int64_t count, absl::FunctionRef<void(int64_t, int)> body) : count(count), body(body) {}
    const int64_t count;
    absl::FunctionRef<void(int64_t, int)> body;
    std::atomic<int64_t> next{0};
    // Pool threads that are in the loop. Rises only under mutex_, and only while loop_ is this.
    std::atomic<int> running{0};
  };

  void RunThread(int thread);
  static void Work(Loop* loop, int thread);

  // These are std:: rather than absl:: primitives because ThreadSanitizer understands them without
  // an instrumented Abseil.
  std::mutex loop_mutex_;  // held by the caller whose loop runs
  std::mutex mutex_;
  std::condition_variable work_;  // notified when generation_ changes
  std::condition_variable idle_;  // notified when a loop's `running` becomes 0
  Loop* loop_ = nullptr;          // guarded by mutex_
  // Counts the loops and the stop. Changes only under mutex_; spinning threads read it without.
  std::atomic<uint64_t> generation_{0};
  bool stop_ = false;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_THREAD_POOL_H_
