// These tests also run with a wall clock that is an hour ahead of the kernel's and with one that is
// an hour behind (tests/CMakeLists.txt): timers that follow it are an hour late or fire at once.
#include "common/rpc/steady_timers.h"

#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/clock.h"
#include "common/rpc/grpc_ps_client.h"
#include "common/rpc/grpc_ps_server.h"
#include "common/rpc/grpc_runtime.h"
#include "tests/common/rpc/fake_ps_handler.h"

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

// What gRPC's timer threads do.
TEST_F(SteadyTimersTest, AbseilsTimedWaitsTakeAsLongAsTheyAreToldTo) {
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

// Two threads hand a number to each other; a lost wake-up stops both for ever.
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

TEST_F(SteadyTimersTest, ACallThatIsNotAnsweredEndsAtItsDeadline) {
  StartServer("127.0.0.1:0");
  const auto client = MakeGrpcPsClient(server_->address(), options_);
  ASSERT_TRUE(client->GetStatus(absl::Seconds(60)).ok());
  const absl::Duration start = clock_.Now();
  const absl::Status status = client->Heartbeat({}, kShort).status();  // never answered
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_GE(clock_.Now() - start, kShort);
}

TEST_F(SteadyTimersTest, AConnectionIsTriedAgain) {
  StartServer("127.0.0.1:0");
  const std::string address = server_->address();
  const auto client = MakeGrpcPsClient(address, options_);
  ASSERT_TRUE(client->GetStatus(absl::Seconds(60)).ok());
  server_.reset();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(client->GetStatus(absl::Seconds(2)).ok());
  StartServer(address);
  const absl::Duration start = clock_.Now();
  absl::Status status = absl::UnknownError("not asked");
  while (!status.ok() && clock_.Now() - start < absl::Minutes(1)) {
    status = client->GetStatus(absl::Seconds(2)).status();
  }
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace pushpull
