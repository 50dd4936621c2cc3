// The gate without gRPC. server_limits_test.cc and connection_preface_test.cc test it with gRPC.
#include "ps_server/transport/connection_gate.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "tests/ps_server/transport/raw_peer.h"

namespace pushpull {
namespace {

// Answers, then reads as long as data arrives, as gRPC does in the thread that hands over a
// connection.
void ReadWhatComes(int fd) {
  EXPECT_EQ(send(fd, "x", 1, MSG_NOSIGNAL), 1);
  char bytes[16384];
  pollfd readable{fd, POLLIN, 0};
  while (poll(&readable, 1, 500) == 1 && recv(fd, bytes, sizeof(bytes), 0) > 0) {
  }
  shutdown(fd, SHUT_RDWR);
  close(fd);
}

class ConnectionGateTest : public testing::Test {
 protected:
  void Open() {
    auto sockets = ListeningSockets::Bind("127.0.0.1:0");
    ASSERT_TRUE(sockets.ok()) << sockets.status();
    address_ = sockets->address();
    const auto deliver = [this](int fd) {
      EXPECT_FALSE(taker_busy_.exchange(true)) << "the taker must get one connection at a time";
      ReadWhatComes(fd);
      taker_busy_ = false;
    };
    auto gate = ConnectionGate::Open(*std::move(sockets), ConnectionPreface::kHttp2, limits_,
                                     &table_, &watch_, deliver);
    ASSERT_TRUE(gate.ok()) << gate.status();
    gate_ = *std::move(gate);
  }

  ServerLimits limits_;
  SteadyClock clock_;
  ConnectionTable table_{limits_, ConnectionPreface::kHttp2, &clock_};
  CallWatch watch_{limits_, &clock_};
  std::atomic<bool> taker_busy_{false};
  std::string address_;
  std::unique_ptr<ConnectionGate> gate_;
};

TEST_F(ConnectionGateTest, CutsAConnectionThatKeepsItsTakerBusy) {
  Open();
  RawPeer endless(address_);
  ASSERT_TRUE(endless.Greet());
  const std::string piece(16384, 'a');
  int64_t sent = 0;
  while (sent < (int64_t{1} << 30) && endless.Send(piece)) sent += 16384;
  EXPECT_LT(sent, int64_t{1} << 30) << "the gate has not cut the connection";
  RawPeer next(address_);
  EXPECT_TRUE(next.Greet());
}

// The connection ends although the table, which holds a duplicate of each descriptor, lives on.
TEST_F(ConnectionGateTest, StopEndsWaitingConnections) {
  Open();
  RawPeer silent(address_);
  const absl::Time deadline = absl::Now() + absl::Seconds(60);
  while (table_.size() < 1 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  gate_->Stop();
  EXPECT_TRUE(silent.AwaitEnd());
  EXPECT_EQ(table_.size(), 0);
}

TEST_F(ConnectionGateTest, StopsWhileATakerIsBusy) {
  Open();
  RawPeer busy(address_);
  ASSERT_TRUE(busy.Greet());
  RawPeer waiting(address_);
  ASSERT_TRUE(waiting.Send(kHttp2Preface + Http2Frame(4, 0, 0, "")));
  std::thread sender([&] {
    while (busy.Send(std::string(16384, 'a'))) {
    }
  });
  gate_->Stop();
  sender.join();
  EXPECT_TRUE(waiting.AwaitEnd());
}

}  // namespace
}  // namespace pushpull
