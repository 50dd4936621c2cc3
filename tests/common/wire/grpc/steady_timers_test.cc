// CTest also runs these tests with a wall clock one hour ahead of the kernel's and one hour behind
// it (tests/CMakeLists.txt). Timers that follow the wall clock are then an hour late or fire at
// once.
#include "common/wire/grpc/steady_timers.h"

#include <fcntl.h>
#include <grpc/support/sync.h>
#include <grpc/support/time.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

#include "common/base/clock.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/grpc/grpc_runtime.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/fake_ps_handler.h"

namespace pushpull {
namespace {

constexpr absl::Duration kShort = absl::Milliseconds(200);

class SteadyTimersTest : public ::testing::Test {
 protected:
  SteadyTimersTest() { InitGrpcRuntime(); }

  void StartServer(const std::string& address) {
    auto server = StartGrpcPsServer(address, &handler_, options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  SteadyClock clock_;
  TransportOptions options_;
  FakePsHandler handler_;
  std::unique_ptr<GrpcPsServer> server_;
};

// gRPC's timer threads wait in this way.
TEST_F(SteadyTimersTest, AbseilsTimedWaitsTakeTheRequestedTime) {
  absl::Mutex mutex;
  bool never = false;
  absl::MutexLock lock(&mutex);
  const absl::Duration start = clock_.Now();
  EXPECT_FALSE(mutex.AwaitWithTimeout(absl::Condition(&never), kShort));
  EXPECT_GE(clock_.Now() - start, kShort);
}

TEST_F(SteadyTimersTest, AbseilsWaitsEndWithASignal) {
  absl::Mutex mutex;
  bool here = false;
  std::thread other([&] {
    absl::MutexLock lock(&mutex);
    here = true;
  });
  absl::MutexLock lock(&mutex);
  EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&here), absl::Hours(2)));
  other.join();
}

// Two threads pass a number back and forth. A lost wake-up blocks both forever.
TEST_F(SteadyTimersTest, AbseilsWaitsLoseNoWakeUp) {
  constexpr int kRounds = 20000;
  absl::Mutex mutex;
  int turn = 0;
  const auto play = [&](int parity) {
    for (int i = parity; i < kRounds; i += 2) {
      const auto mine = [&turn, i] { return turn == i; };
      absl::MutexLock lock(&mutex);
      EXPECT_TRUE(mutex.AwaitWithTimeout(absl::Condition(&mine), absl::Hours(2)));
      ++turn;
    }
  };
  std::thread odd(play, 1);
  play(0);
  odd.join();
  EXPECT_EQ(turn, kRounds);
}

// Sets the wall clock of the process forwards and backwards until it is destroyed, through the file
// that the preloaded shifted_clock maps. A wait that is wrong by one step is ten seconds late.
class RestlessClock {
 public:
  explicit RestlessClock(const char* file) {
    const int fd = open(file, O_RDWR | O_CLOEXEC);
    CHECK_GE(fd, 0) << file;
    void* const mapped = mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED) << file;
    close(fd);
    shift_ = static_cast<std::atomic<int64_t>*>(mapped);
    // The clock has been set when the constructor returns and is set again much later: a timeout
    // that is made in the very moment of a step, unseen by any wait before, may end at once.
    SetTo(1);
    thread_ = std::thread([this] {
      for (int64_t step = 2; !stop_.load(); ++step) {
        absl::SleepFor(absl::Milliseconds(300));
        SetTo(step);
      }
    });
  }
  ~RestlessClock() {
    stop_.store(true);
    thread_.join();
    shift_->store(0);
  }

 private:
  void SetTo(int64_t step) {
    const int64_t height = step % 20 <= 10 ? step % 20 : 20 - step % 20;  // up and down again
    shift_->store(height * int64_t{10'000'000'000});
  }

  std::atomic<int64_t>* shift_ = nullptr;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// When the clock is set, Abseil's notion of the time lags behind the kernel's. gRPC uses both.
TEST(SteadyTimersStepTest, WaitsEndInTimeWhileTheClockIsSet) {
  const char* const file = getenv("PUSHPULL_CLOCK_SHIFT_FILE");
  if (file == nullptr) GTEST_SKIP() << "needs the preloaded clock (tests/CMakeLists.txt)";
  InitGrpcRuntime();
  const RestlessClock restless(file);
  constexpr absl::Duration kAtMost = absl::Seconds(9);  // less than one step
  SteadyClock clock;
  gpr_mu lock;
  gpr_cv changed;
  gpr_mu_init(&lock);
  gpr_cv_init(&changed);
  absl::Mutex mutex;
  bool never = false;
  const absl::Duration end = clock.Now() + absl::Seconds(7);
  for (int i = 0; clock.Now() < end && !HasFailure(); ++i) {
    const absl::Duration start = clock.Now();
    gpr_mu_lock(&lock);
    gpr_cv_wait(&changed, &lock,
                gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(5, GPR_TIMESPAN)));
    gpr_mu_unlock(&lock);
    EXPECT_LT(clock.Now() - start, kAtMost) << "gRPC, wait " << i;
    const absl::Duration middle = clock.Now();
    {
      absl::MutexLock held(&mutex);
      mutex.AwaitWithTimeout(absl::Condition(&never), absl::Milliseconds(5));
    }
    EXPECT_LT(clock.Now() - middle, kAtMost) << "Abseil, wait " << i;
  }
  gpr_cv_destroy(&changed);
  gpr_mu_destroy(&lock);
}

// The waiting thread is woken repeatedly, finds its condition false, and waits for the rest of its
// time.
TEST(SteadyTimersStepTest, AnInterruptedWaitEndsInTime) {
  const char* const file = getenv("PUSHPULL_CLOCK_SHIFT_FILE");
  if (file == nullptr) GTEST_SKIP() << "needs the preloaded clock (tests/CMakeLists.txt)";
  InitGrpcRuntime();
  const RestlessClock restless(file);
  absl::Mutex mutex;
  int tries = 0;
  std::atomic<bool> over{false};
  std::thread waking([&] {
    while (!over.load()) {
      { absl::MutexLock held(&mutex); }
      absl::SleepFor(absl::Milliseconds(50));
    }
  });
  SteadyClock clock;
  const absl::Duration start = clock.Now();
  {
    absl::MutexLock held(&mutex);
    const auto never = [&tries] { return ++tries < 0; };
    EXPECT_FALSE(mutex.AwaitWithTimeout(absl::Condition(&never), absl::Seconds(5)));
  }
  const absl::Duration took = clock.Now() - start;
  over.store(true);
  waking.join();
  EXPECT_GT(tries, 10);
  EXPECT_GE(took, absl::Seconds(4));
  EXPECT_LT(took, absl::Seconds(13)) << "a wait that is wrong by one step takes 15 s";
}

TEST_F(SteadyTimersTest, AnUnansweredCallEndsAtItsDeadline) {
  StartServer("127.0.0.1:0");
  const auto client = MakeGrpcPsClient(server_->address(), options_);
  ASSERT_TRUE(client->GetStatus({}, absl::Seconds(60)).ok());
  const absl::Duration start = clock_.Now();
  const absl::Status status = client->Heartbeat({}, kShort).status();  // the handler never answers
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_GE(clock_.Now() - start, kShort);
}

TEST_F(SteadyTimersTest, RetriesAConnection) {
  StartServer("127.0.0.1:0");
  const std::string address = server_->address();
  const auto client = MakeGrpcPsClient(address, options_);
  ASSERT_TRUE(client->GetStatus({}, absl::Seconds(60)).ok());
  server_.reset();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(client->GetStatus({}, absl::Seconds(2)).ok());
  StartServer(address);
  const absl::Duration start = clock_.Now();
  absl::Status status = absl::UnknownError("not asked");
  while (!status.ok() && clock_.Now() - start < absl::Minutes(1)) {
    status = client->GetStatus({}, absl::Seconds(2)).status();
  }
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace pushpull
