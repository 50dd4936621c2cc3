#include "common/base/serial_executor.h"

#include <numeric>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(SerialExecutorTest, RunsEverythingInOrderOnOneOtherThread) {
  std::vector<int> ran;
  std::vector<std::thread::id> threads;
  absl::Notification may_begin;
  {
    SerialExecutor executor;
    executor.Run([&] { may_begin.WaitForNotification(); });
    for (int i = 0; i < 100; ++i) {
      executor.Run([&, i] {
        ran.push_back(i);
        threads.push_back(std::this_thread::get_id());
      });
    }
    EXPECT_TRUE(ran.empty());
    may_begin.Notify();
  }  // waits for what is queued
  std::vector<int> expected(100);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(ran, expected);
  EXPECT_NE(threads.front(), std::this_thread::get_id());
  EXPECT_EQ(threads, std::vector<std::thread::id>(100, threads.front()));
}

TEST(SerialExecutorTest, WorkMayQueueMoreWork) {
  bool ran = false;
  {
    SerialExecutor executor;
    executor.Run([&] { executor.Run([&] { ran = true; }); });
  }
  EXPECT_TRUE(ran);
}

TEST(SerialExecutorTest, StopRunsWhatIsQueuedAndDropsWhatComesLater) {
  SerialExecutor executor;
  int ran = 0;
  for (int i = 0; i < 10; ++i) executor.Run([&ran] { ++ran; });
  executor.Stop();
  EXPECT_EQ(ran, 10);
  executor.Run([&ran] { ++ran; });
  executor.Stop();
  EXPECT_EQ(ran, 10);
}

}  // namespace
}  // namespace pushpull
