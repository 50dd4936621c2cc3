// Connections that stay open but carry nothing: a relay between client and server stops forwarding
// in the middle of calls.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

#include "common/wire/default_lease.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/fake_ps_handler.h"
#include "tests/testkit/pulled_bytes.h"

namespace pushpull {
namespace {

constexpr absl::Duration kLong = absl::Seconds(120);  // calls must end long before this timeout

// Forwards bytes both ways until it is silent. Then it keeps open connections, discards their data,
// and accepts no new ones.
class SilentRelay {
 public:
  explicit SilentRelay(const std::string& target) {
    CHECK(absl::SimpleAtoi(target.substr(target.rfind(':') + 1), &target_port_));
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name = Loopback(0);
    socklen_t size = sizeof(name);
    PCHECK(bind(listener_, reinterpret_cast<sockaddr*>(&name), size) == 0);
    PCHECK(listen(listener_, 16) == 0);
    PCHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &size) == 0);
    port_ = ntohs(name.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~SilentRelay() {
    stop_.store(true);
    thread_.join();
    for (const int fd : fds_) close(fd);
    close(listener_);
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int connections() const { return connections_.load(); }
  void SetSilent(bool silent) { silent_.store(silent); }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return name;
  }

  void Accept() {
    const int client = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in name = Loopback(target_port_);
    PCHECK(client >= 0 && server >= 0);
    PCHECK(connect(server, reinterpret_cast<sockaddr*>(&name), sizeof(name)) == 0);
    fds_.push_back(client);
    fds_.push_back(server);
    dead_.resize(fds_.size(), false);
    ++connections_;
  }

  // Connections from before a silence stay silent forever.
  void Run() {
    std::vector<char> bytes(1 << 16);
    while (!stop_.load()) {
      std::vector<pollfd> polled;
      const bool silent = silent_.load();
      if (silent) dead_.assign(fds_.size(), true);
      for (const int fd : fds_) polled.push_back({fd, POLLIN, 0});
      if (!silent) polled.push_back({listener_, POLLIN, 0});
      poll(polled.data(), polled.size(), 10);
      for (size_t i = 0; i < fds_.size(); ++i) {
        if ((polled[i].revents & POLLIN) == 0) continue;
        const ssize_t got = recv(fds_[i], bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got <= 0 && !dead_[i]) shutdown(fds_[i ^ 1], SHUT_WR);
        if (got > 0 && !dead_[i]) send(fds_[i ^ 1], bytes.data(), got, MSG_NOSIGNAL);
      }
      if (!silent && (polled.back().revents & POLLIN) != 0) Accept();
    }
  }

  int target_port_ = 0;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> silent_{false};
  std::atomic<bool> stop_{false};
  std::atomic<int> connections_{0};
  std::vector<int> fds_;  // pairs: the connection of a client and its connection to the server
  std::vector<bool> dead_;
  std::thread thread_;
};

class HalfOpenTest : public ::testing::Test {
 protected:
  HalfOpenTest() {
    options_.keepalive_time_milliseconds = 300;
    options_.keepalive_timeout_milliseconds = 300;
    handler_.hold_pulls = true;
    auto server = StartGrpcPsServer("127.0.0.1:0", &handler_, options_);
    CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    relay_ = std::make_unique<SilentRelay>(server_->address());
    client_ = MakeGrpcPsClient(relay_->address(), options_);
  }
  ~HalfOpenTest() override { client_.reset(); }

  // Calls repeatedly until one call succeeds, as a worker does.
  void ExpectToRecover() {
    const absl::Time start = absl::Now();
    absl::Status status;
    do {
      status = client_->GetStatus({}, absl::Seconds(20)).status();
      if (!status.ok()) absl::SleepFor(absl::Milliseconds(20));
    } while (!status.ok() && absl::Now() - start < absl::Seconds(60));
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_GE(relay_->connections(), 2) << "the client must open a new connection";
  }

  TransportOptions options_;
  FakePsHandler handler_;
  std::unique_ptr<GrpcPsServer> server_;
  std::unique_ptr<SilentRelay> relay_;
  std::unique_ptr<PsClient> client_;
};

// The client sends no data, so only its keepalive probes can find out.
TEST_F(HalfOpenTest, AWaitingCallEndsLongBeforeItsDeadline) {
  const absl::Time start = absl::Now();
  absl::Status status;
  std::thread puller([&] { status = client_->Pull({}, kLong, PulledBytes().sink()); });
  handler_.AwaitHeldPull();
  relay_->SetSilent(true);
  puller.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_LT(absl::Now() - start, kLong / 2);
  // The server has closed its side too and keeps nothing for the lost peer.
  handler_.AwaitCancelledPull();
  relay_->SetSilent(false);
  ExpectToRecover();
}

TEST_F(HalfOpenTest, ASendingCallEndsLongBeforeItsDeadline) {
  ASSERT_TRUE(client_->GetStatus({}, kLong).ok());
  const absl::Time start = absl::Now();
  auto stream = client_->StartPush(kLong);
  ps::PushChunk header;
  const Payload payload = MakePayload(1 << 20, 1);
  ASSERT_TRUE(stream->Send(header, payload).ok());
  relay_->SetSilent(true);
  for (uint32_t chunk = 1; chunk < 20; ++chunk) {
    header.set_chunk(chunk);
    if (!stream->Send(header, payload).ok()) break;
  }
  EXPECT_TRUE(absl::IsUnavailable(stream->Finish().status()));
  EXPECT_LT(absl::Now() - start, kLong / 2);
  stream.reset();
  relay_->SetSilent(false);
  ExpectToRecover();
}

TEST(TransportOptionsTest, ADeadConnectionIsNoticedWithinALease) {
  const TransportOptions options;
  EXPECT_LT(absl::Milliseconds(options.keepalive_time_milliseconds +
                               options.keepalive_timeout_milliseconds),
            kDefaultLease);
}

}  // namespace
}  // namespace pushpull
