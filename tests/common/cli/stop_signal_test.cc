#include "common/cli/stop_signal.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <future>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

// Each signal counts.
constexpr StopSignalOptions kNoRepetitions = {.repetitions = absl::ZeroDuration()};

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
        const auto signal = StopSignal::Install([](int) {}, kNoRepetitions);
        ::raise(SIGINT);
        ::raise(SIGTERM);
        std::exit(3);
      },
      testing::ExitedWithCode(143), "");
}

// `timeout` signals its command, and then its process group, to which the command belongs.
TEST(StopSignalDeathTest, ARepeatedSignalIsNotASecondOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto signal = StopSignal::Install([](int) {});
        ::raise(SIGTERM);
        ::raise(SIGTERM);
        ::raise(SIGINT);
        std::exit(signal->requested() ? 3 : 4);
      },
      testing::ExitedWithCode(3), "");
}

TEST(StopSignalDeathTest, ASignalAfterTheRepetitionsEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto signal =
            StopSignal::Install([](int) {}, {.repetitions = absl::Milliseconds(20)});
        ::raise(SIGTERM);
        absl::SleepFor(absl::Milliseconds(20));
        ::raise(SIGTERM);
        std::exit(3);
      },
      testing::ExitedWithCode(143), "");
}

// Blocks the signals, so that only a thread that unblocks them handles them.
void SetBlocked(bool is_blocked) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::sigaddset(&signals, SIGTERM);
  ASSERT_EQ(::sigprocmask(is_blocked ? SIG_BLOCK : SIG_UNBLOCK, &signals, nullptr), 0);
}

// A process that sends signals to this one. Each call of Send returns after they have been sent.
class OtherProcess {
 public:
  OtherProcess() {
    int ends[2];
    if (::pipe(ends) != 0 || ::pipe(acknowledged_) != 0 || (pid_ = ::fork()) < 0) std::abort();
    order_ = ends[1];
    if (pid_ > 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    char number = 0;
    while (::read(ends[0], &number, 1) == 1) {
      ::kill(::getppid(), number);
      (void)!::write(acknowledged_[1], &number, 1);
    }
    ::_exit(0);
  }
  ~OtherProcess() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  void Send(char number) const {
    if (::write(order_, &number, 1) != 1 || ::read(acknowledged_[0], &number, 1) != 1) std::abort();
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = 0;
  int order_ = -1;
  int acknowledged_[2];
};

TEST(StopSignalDeathTest, AForwardedSignalIsNotASecondOne) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool is_forwarded_first : {false, true}) {
    EXPECT_EXIT(
        {
          SetBlocked(true);  // in the callback's thread, which inherits this
          std::promise<int> received;
          const OtherProcess forwarder;
          StopSignalOptions options = kNoRepetitions;
          options.forwarder = forwarder.pid();
          const auto signal =
              StopSignal::Install([&](int number) { received.set_value(number); }, options);
          SetBlocked(false);
          if (is_forwarded_first) forwarder.Send(SIGTERM);
          ::raise(SIGTERM);
          forwarder.Send(SIGTERM);
          forwarder.Send(SIGINT);
          std::exit(received.get_future().get() == SIGTERM ? 3 : 4);
        },
        testing::ExitedWithCode(3), "");
  }
}

TEST(StopSignalDeathTest, ASecondSignalThatIsNotForwardedEndsTheProcessAtOnce) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        SetBlocked(true);
        const OtherProcess forwarder;
        const OtherProcess another;
        StopSignalOptions options = kNoRepetitions;
        options.forwarder = forwarder.pid();
        const auto signal = StopSignal::Install([](int) {}, options);
        SetBlocked(false);
        another.Send(SIGINT);
        forwarder.Send(SIGINT);
        another.Send(SIGINT);
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
        const auto block = [&](int) {
          entered.set_value();
          never.get_future().wait();
        };
        const auto signal = StopSignal::Install(block, kNoRepetitions);
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

// Writes to a pipe that nobody reads. Returns the error number of the write.
int WriteToAClosedPipe() {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  ::close(ends[0]);
  const int result = ::write(ends[1], "x", 1) == 1 ? 0 : errno;
  ::close(ends[1]);
  return result;
}

TEST(StopSignalDeathTest, AClosedPipeDoesNotEndTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::signal(SIGPIPE, SIG_DFL);
        auto signal = StopSignal::Install([](int) {});
        if (WriteToAClosedPipe() != EPIPE || signal->requested()) std::exit(4);
        signal.reset();
        std::exit(WriteToAClosedPipe() == EPIPE ? 3 : 5);  // the process still has to say its end
      },
      testing::ExitedWithCode(3), "");
}

TEST(StopSignalDeathTest, AClosedPipeEndsTheProcessThatChoosesSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::signal(SIGPIPE, SIG_DFL);
        const auto signal = StopSignal::Install(
            [](int) {}, {.closed_pipe = StopSignalOptions::ClosedPipe::kEndProcess});
        WriteToAClosedPipe();
        std::exit(3);
      },
      testing::KilledBySignal(SIGPIPE), "");
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
