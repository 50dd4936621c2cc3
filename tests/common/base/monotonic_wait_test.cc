// CTest also runs these tests with a wall clock one hour ahead of the kernel's and one hour behind
// it (tests/CMakeLists.txt). A wait that follows the wall clock then either blocks until the test
// times out or returns at once.
#include "common/base/monotonic_wait.h"

#include <chrono>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(50);

absl::Duration SteadyNow() {
  return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

class MonotonicCondVarTest : public ::testing::Test {
 protected:
  bool Await(absl::Duration timeout) {
    absl::MutexLock lock(&mutex_);
    ++waits_;
    const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ready_; };
    return changed_.Await(&mutex_, ready, timeout);
  }
  // Fulfils the condition once `waits` waits have begun. It holds the mutex then, so these waits
  // have released it and block.
  void MakeReady(int waits = 0) {
    absl::MutexLock lock(&mutex_);
    const auto begun = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return waits_ >= waits; };
    mutex_.Await(absl::Condition(&begun));
    ready_ = true;
    changed_.NotifyAll();
  }

  absl::Mutex mutex_;
  MonotonicCondVar changed_;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;
  int waits_ ABSL_GUARDED_BY(mutex_) = 0;  // that have begun
};

TEST_F(MonotonicCondVarTest, TimesOutAfterTheTimeoutInSteadyTime) {
  const absl::Duration start = SteadyNow();
  EXPECT_FALSE(Await(kShort));
  EXPECT_GE(SteadyNow() - start, kShort);
}

TEST_F(MonotonicCondVarTest, DoesNotBlockWithoutTimeLeft) {
  EXPECT_FALSE(Await(absl::ZeroDuration()));
  EXPECT_FALSE(Await(-absl::Hours(1)));
  EXPECT_FALSE(Await(-absl::InfiniteDuration()));
}

TEST_F(MonotonicCondVarTest, ReturnsAtOnceIfTheConditionHolds) {
  MakeReady();
  EXPECT_TRUE(Await(absl::ZeroDuration()));
  EXPECT_TRUE(Await(-absl::Hours(1)));
  EXPECT_TRUE(Await(absl::InfiniteDuration()));
}

TEST_F(MonotonicCondVarTest, ANotificationEndsWaitsOfEveryLength) {
  std::vector<std::thread> waiters;
  for (const absl::Duration timeout :
       {absl::InfiniteDuration(), absl::Hours(24 * 365 * 400), absl::Hours(1)}) {
    waiters.emplace_back([this, timeout] { EXPECT_TRUE(Await(timeout)); });
  }
  MakeReady(3);
  for (std::thread& waiter : waiters) waiter.join();
}

TEST_F(MonotonicCondVarTest, ReleasesTheMutexWhileItBlocks) {
  std::thread waiter([this] { EXPECT_TRUE(Await(absl::Seconds(30))); });
  MakeReady(1);  // gets the mutex too late if the waiter keeps it
  waiter.join();
}

// A notification without a change of the condition does not end the wait early.
TEST_F(MonotonicCondVarTest, KeepsWaitingUntilTheConditionHolds) {
  StopFlag stop;
  std::thread noise([&] {
    while (!stop.WaitFor(absl::Milliseconds(1))) changed_.NotifyAll();
  });
  const absl::Duration start = SteadyNow();
  EXPECT_FALSE(Await(kShort));
  EXPECT_GE(SteadyNow() - start, kShort);
  stop.Raise();
  noise.join();
}

// Two threads pass a number back and forth. A lost notification blocks both forever.
TEST(MonotonicCondVarStressTest, LosesNoNotification) {
  constexpr int kRounds = 20000;
  absl::Mutex mutex;
  MonotonicCondVar changed;
  int turn = 0;
  const auto play = [&](int parity) {
    for (int i = parity; i < kRounds; i += 2) {
      absl::MutexLock lock(&mutex);
      EXPECT_TRUE(changed.Await(
          &mutex, [&] { return turn == i; }, absl::InfiniteDuration()));
      ++turn;
      changed.NotifyAll();
    }
  };
  std::thread odd(play, 1);
  play(0);
  odd.join();
  EXPECT_EQ(turn, kRounds);
}

// The waiter destroys the condition variable as soon as its wait returns.
TEST(MonotonicCondVarStressTest, TheWaiterMayDestroyIt) {
  for (int i = 0; i < 2000; ++i) {
    auto flag = std::make_unique<StopFlag>();
    std::thread raiser([raised = flag.get()] { raised->Raise(); });
    EXPECT_TRUE(flag->WaitFor(absl::InfiniteDuration()));
    flag.reset();
    raiser.join();
  }
}

TEST(StopFlagTest, StaysRaised) {
  StopFlag flag;
  EXPECT_FALSE(flag.WaitFor(kShort));
  flag.Raise();
  flag.Raise();
  EXPECT_TRUE(flag.WaitFor(absl::ZeroDuration()));
  EXPECT_TRUE(flag.WaitFor(absl::InfiniteDuration()));
}

TEST(DeadlineTest, CountsDownInSteadyTime) {
  const Deadline deadline(absl::Hours(1));
  EXPECT_FALSE(deadline.HasPassed());
  EXPECT_LE(deadline.Left(), absl::Hours(1));
  EXPECT_GT(deadline.Left(), absl::Minutes(30));
  const Deadline passed(-absl::Seconds(1));
  EXPECT_TRUE(passed.HasPassed());
  EXPECT_EQ(passed.Left(), absl::ZeroDuration());
  EXPECT_EQ(Deadline(absl::InfiniteDuration()).Left(), absl::InfiniteDuration());
}

}  // namespace
}  // namespace pushpull
