#include "common/cli/stop_signal.h"

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <future>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(StopSignalTest, TheFirstSignalRunsTheCallbackOnce) {
  std::promise<int> received;
  {
    const auto signal = StopSignal::Install([&](int number) { received.set_value(number); });
    EXPECT_FALSE(signal->requested());
    ::raise(SIGTERM);
    EXPECT_TRUE(signal->requested());
    auto future = received.get_future();
    ASSERT_EQ(future.wait_for(std::chrono::seconds(60)), std::future_status::ready);
    EXPECT_EQ(future.get(), SIGTERM);
  }
  // The handlers are restored, so a second installation starts from the beginning.
  const auto again = StopSignal::Install([](int) {});
  EXPECT_FALSE(again->requested());
}

TEST(StopSignalTest, EndsWithoutCallbackIfThereIsNoSignal) {
  bool called = false;
  {
    const auto signal = StopSignal::Install([&](int) { called = true; });
  }
  EXPECT_FALSE(called);
}

TEST(StopSignalDeathTest, TheSecondSignalEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto signal = StopSignal::Install([](int) {});
        ::raise(SIGINT);
        ::raise(SIGTERM);
        std::exit(3);
      },
      testing::ExitedWithCode(143), "");
}

TEST(StopSignalDeathTest, ABlockedCallbackDoesNotDelayTheSecondSignal) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::promise<void> never;
        std::promise<void> entered;
        const auto signal = StopSignal::Install([&](int) {
          entered.set_value();
          never.get_future().wait();
        });
        ::raise(SIGTERM);
        entered.get_future().wait();
        ::raise(SIGTERM);
        std::exit(3);
      },
      testing::ExitedWithCode(143), "");
}

TEST(StopSignalTest, HangUpIsIgnored) {
  const auto signal = StopSignal::Install([](int) {});
  ::raise(SIGHUP);
  EXPECT_FALSE(signal->requested());
}

TEST(StopSignalTest, AnIgnoredInterruptStaysIgnored) {
  const auto old_handler = ::signal(SIGINT, SIG_IGN);
  {
    const auto signal = StopSignal::Install([](int) {});
    ::raise(SIGINT);
    EXPECT_FALSE(signal->requested());
  }
  ::signal(SIGINT, old_handler);
}

}  // namespace
}  // namespace pushpull
