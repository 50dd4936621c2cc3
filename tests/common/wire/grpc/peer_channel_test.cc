#include "common/wire/grpc/peer_channel.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

#include "common/wire/grpc/grpc_ps_client.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/testkit/fake_ps_handler.h"

namespace pushpull {
namespace {

// A name server for "ps.test", on a UDP port of 127.0.0.1. It knows no address of the name until
// Set is called.
class NameServer {
 public:
  NameServer() : socket_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    PCHECK(bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0);
    PCHECK(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Run(); });
  }
  ~NameServer() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }

  int port() const { return port_; }
  // From now on the name has this IPv4 address.
  void Set(const std::string& address) {
    absl::MutexLock lock(&mutex_);
    address_ = address;
  }
  // Returns how often the IPv4 address of the name has been asked for.
  int lookups() const {
    absl::MutexLock lock(&mutex_);
    return lookups_;
  }

 private:
  static constexpr char kQuestion[] = "\x02ps\x04test";  // with the zero byte of the root

  void Run() {
    char query[512];
    sockaddr_in from{};
    for (;;) {
      socklen_t from_size = sizeof(from);
      const ssize_t size = recvfrom(socket_, query, sizeof(query), 0,
                                    reinterpret_cast<sockaddr*>(&from), &from_size);
      if (size <= 0) return;
      const std::string answer = Answer(std::string(query, size));
      sendto(socket_, answer.data(), answer.size(), 0, reinterpret_cast<sockaddr*>(&from),
             from_size);
    }
  }

  // The formats are those of RFC 1035, section 4: a header of 12 bytes, the question (name, type,
  // class), and the record of the answer.
  std::string Answer(const std::string& query) {
    const std::string question(kQuestion, sizeof(kQuestion));
    const bool known_name = query.compare(12, question.size(), question) == 0;
    const std::string type = query.substr(12 + question.size(), 2);
    const bool asks_for_v4 = known_name && type == std::string("\x00\x01", 2);
    absl::MutexLock lock(&mutex_);
    lookups_ += asks_for_v4;
    const bool has_address = known_name && !address_.empty();
    std::string answer = query.substr(0, 2);
    // A response to a recursive query: no error, or no such name.
    answer += has_address ? std::string("\x81\x80", 2) : std::string("\x81\x83", 2);
    const bool with_record = has_address && asks_for_v4;
    answer += std::string("\x00\x01\x00", 3) + (with_record ? '\x01' : '\x00');
    answer += std::string(4, '\0');
    // The question ends four bytes after its name; a query may have further records.
    answer += query.substr(12, query.find('\0', 12) + 5 - 12);
    if (with_record) {
      in_addr v4{};
      CHECK_EQ(1, inet_pton(AF_INET, address_.c_str(), &v4));
      // The name is that at byte 12; type A, class IN, 0 s to live, 4 bytes.
      answer += std::string("\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04", 12);
      answer.append(reinterpret_cast<const char*>(&v4), 4);
    }
    return answer;
  }

  const int socket_;
  int port_ = 0;
  mutable absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  int lookups_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

class PeerChannelTest : public testing::Test {
 protected:
  PeerChannelTest() {
    TransportOptions options;
    auto server = StartGrpcPsServer("127.0.0.1:0", &handler_, options);
    CHECK(server.ok()) << server.status();
    server_ = *std::move(server);
    options.renew_channel_after = absl::Milliseconds(100);
    const std::string port = server_->address().substr(server_->address().rfind(':'));
    client_ = MakeGrpcPsClient(absl::StrCat("dns://127.0.0.1:", names_.port(), "/ps.test", port),
                               options);
  }

  absl::Status Call() { return client_->GetJob({}, absl::Seconds(5)).status(); }
  // Calls until the name has been looked up this many times. gRPC alone would look up a name that
  // is unknown at once and then after 1, 2.6, 5.2, 9.3, 15.8 and 26 s, give or take a fifth, and a
  // name whose address does not answer every 30 s.
  void CallUntilLookups(int wanted) {
    const absl::Time start = absl::Now();
    while (names_.lookups() < wanted) {
      ASSERT_LT(absl::Now() - start, absl::Seconds(20)) << names_.lookups() << " lookups";
      EXPECT_FALSE(Call().ok());
    }
  }

  void ExpectToReachTheServer() {
    const absl::Time start = absl::Now();
    absl::Status status = Call();
    while (!status.ok() && absl::Now() - start < absl::Seconds(20)) status = Call();
    EXPECT_TRUE(status.ok()) << status;
  }

  NameServer names_;
  FakePsHandler handler_;
  std::unique_ptr<GrpcPsServer> server_;
  std::unique_ptr<PsClient> client_;
};

TEST_F(PeerChannelTest, FindsAServerWhoseNameAppearsLater) {
  CallUntilLookups(7);
  names_.Set("127.0.0.1");
  ExpectToReachTheServer();
  EXPECT_TRUE(Call().ok());
}

TEST_F(PeerChannelTest, FindsAServerThatHasAnotherAddress) {
  names_.Set("127.0.0.2");  // nothing listens there
  CallUntilLookups(4);
  names_.Set("127.0.0.1");
  ExpectToReachTheServer();
}

TEST_F(PeerChannelTest, KeepsAChannelThatWorks) {
  names_.Set("127.0.0.1");
  for (int call = 0; call < 20; ++call) {
    EXPECT_TRUE(Call().ok());
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(names_.lookups(), 1);
}

}  // namespace
}  // namespace pushpull
