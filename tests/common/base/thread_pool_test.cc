#include "common/base/thread_pool.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(ThreadPool, RunsEveryIterationOnce) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.num_threads(), threads);
    for (const int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> hits(count);
      pool.ParallelFor(count, [&](int64_t i) { ++hits[i]; });
      for (int64_t i = 0; i < count; ++i) EXPECT_EQ(hits[i], 1) << i << " of " << count;
    }
  }
}

TEST(ThreadPool, ConcurrentIterationsHaveDifferentThreadNumbers) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> shared{false};
  for (int round = 0; round < 200; ++round) {
    pool.ParallelFor(16, [&](int64_t, int thread) {
      if (inside[thread]++ != 0) shared = true;
      --inside[thread];
    });
  }
  EXPECT_FALSE(shared);
}

TEST(ThreadPool, WakesSleepingThreads) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    // Each iteration waits for the two others, so the caller alone cannot finish the loop.
    std::atomic<int> inside{0};
    const absl::Time limit = absl::Now() + absl::Seconds(30);
    pool.ParallelFor(3, [&](int64_t) {
      ++inside;
      while (inside < 3 && absl::Now() < limit) std::this_thread::yield();
    });
    ASSERT_LT(absl::Now(), limit) << "a thread slept on";
    absl::SleepFor(absl::Milliseconds(2));
  }
}

TEST(ThreadPool, SeveralCallersTakeTurns) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      for (int round = 0; round < 300; ++round) pool.ParallelFor(5, [&](int64_t i) { sum += i; });
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 3 * 300 * 10);
}

}  // namespace
}  // namespace pushpull
