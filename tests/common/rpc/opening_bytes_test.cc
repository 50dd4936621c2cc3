// What reaches gRPC: the rules, and a real server behind them.
#include "common/rpc/opening_bytes.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/rpc/grpc_ps_client.h"
#include "common/rpc/grpc_ps_server.h"
#include "tests/common/rpc/fake_ps_handler.h"

namespace pushpull {
namespace {

const char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

std::string Http2(const std::string& frame_header) { return kPreface + frame_header; }

TEST(OpeningBytesTest, Http2BeginsWithItsPrefaceAndSettings) {
  const std::string empty("\0\0\0\4\0\0\0\0\0", 9);
  const std::string three("\0\0\x12\4\0\0\0\0\0", 9);
  EXPECT_TRUE(BeginsAs(Opening::kHttp2, Http2(empty)));
  EXPECT_TRUE(BeginsAs(Opening::kHttp2, Http2(three) + "and more"));
  for (const std::string& bad : {
           Http2(std::string("\0\0\5\4\0\0\0\0\0", 9)),  // no whole settings
           Http2(std::string("\0\0\0\1\0\0\0\0\0", 9)),  // HEADERS
           Http2(std::string("\0\0\0\4\1\0\0\0\0", 9)),  // an acknowledgement
           Http2(std::string("\0\0\0\4\0\0\0\0\1", 9)),  // on a stream
           Http2(std::string("\6\0\0\4\0\0\0\0\0", 9)),  // far too many
           Http2(empty).substr(0, 32),                   // cut short
           std::string("GET / HTTP/1.1\r\nHost: somewhere\r\n"),
           std::string(33, '\0'),
       }) {
    EXPECT_FALSE(BeginsAs(Opening::kHttp2, bad)) << bad;
  }
}

TEST(OpeningBytesTest, TlsBeginsWithAClientHello) {
  EXPECT_TRUE(BeginsAs(Opening::kTls, std::string("\x16\3\1\2\0\1", 6)));
  EXPECT_TRUE(BeginsAs(Opening::kTls, std::string("\x16\3\3\0\xc8\1 and more", 15)));
  for (const std::string& bad : {
           std::string("\x17\3\1\2\0\1", 6),    // application data
           std::string("\x16\2\1\2\0\1", 6),    // not SSL 3 or later
           std::string("\x16\3\1\0\3\1", 6),    // too short
           std::string("\x16\3\1\x7f\0\1", 6),  // longer than a record may be
           std::string("\x16\3\1\2\0\2", 6),    // ServerHello
           std::string("\x16\3\1\2\0", 5),      // cut short
           std::string(kPreface),
       }) {
    EXPECT_FALSE(BeginsAs(Opening::kTls, bad)) << bad;
  }
}

class Peer {
 public:
  explicit Peer(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const std::vector<std::string> parts = absl::StrSplit(address, ':');
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(parts.back(), &port));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &name.sin_addr);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
    const timeval patience{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  ~Peer() { close(fd_); }
  void Send(const std::string& bytes) {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // How many bytes the server answers with, at once; 0: it closes or resets; -1: it does neither.
  ssize_t Answer() {
    char bytes[4096];
    const ssize_t size = recv(fd_, bytes, sizeof(bytes), 0);
    if (size > 0) answers_.append(bytes, size);
    return size < 0 && errno == ECONNRESET ? 0 : size;
  }

  const std::string& answers() const { return answers_; }

 private:
  const int fd_;
  std::string answers_;
};

TEST(OpeningBytesTest, OnlyGoodOnesReachGrpc) {
  FakePsHandler handler;
  TransportOptions options;
  options.limits.handshake = absl::Milliseconds(500);
  const auto server = StartGrpcPsServer("127.0.0.1:0", &handler, options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  {
    Peer good(address);
    good.Send(Http2(settings));
    EXPECT_GE(good.Answer(), 9) << "gRPC's settings";
    // A ping: fewer bytes than the gate waited for.
    good.Send(std::string("\0\0\x8\6\0\0\0\0\0", 9) + "12345678");
    while (!absl::StrContains(good.answers(), "12345678")) ASSERT_GT(good.Answer(), 0);
  }
  {
    Peer in_pieces(address);
    in_pieces.Send(Http2(settings).substr(0, 30));
    absl::SleepFor(absl::Milliseconds(50));
    in_pieces.Send(Http2(settings).substr(30));
    EXPECT_GE(in_pieces.Answer(), 9);
  }
  // gRPC would answer the first three with settings of its own, or an error.
  for (const std::string& bad : {
           Http2(std::string("\0\0\5\4\0\0\0\0\0", 9)),
           std::string("\x16\3\1\0\xc8\1", 6) + std::string(40, 'x'),
           std::string("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"),
           std::string(kPreface).substr(0, 9),  // waits, and is let go
           std::string(),
       }) {
    Peer peer(address);
    if (!bad.empty()) peer.Send(bad);
    EXPECT_EQ(peer.Answer(), 0) << bad;
  }
  EXPECT_TRUE(MakeGrpcPsClient(address)->GetStatus(absl::Seconds(60)).ok());
}

}  // namespace
}  // namespace pushpull
