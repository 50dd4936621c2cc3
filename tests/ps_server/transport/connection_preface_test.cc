// Which connections reach gRPC: the rules, and a real server that applies them.
#include "ps_server/transport/connection_preface.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

#include "common/wire/grpc/grpc_ps_client.h"
#include "ps_server/transport/grpc_ps_server.h"
#include "tests/ps_server/transport/raw_peer.h"
#include "tests/testkit/fake_ps_handler.h"

namespace pushpull {
namespace {

std::string Http2(const std::string& frame_header) { return kHttp2Preface + frame_header; }

TEST(ConnectionPrefaceTest, Http2BeginsWithItsPrefaceAndSettings) {
  const std::string empty("\0\0\0\4\0\0\0\0\0", 9);
  const std::string three("\0\0\x12\4\0\0\0\0\0", 9);
  EXPECT_TRUE(BeginsAs(ConnectionPreface::kHttp2, Http2(empty)));
  EXPECT_TRUE(BeginsAs(ConnectionPreface::kHttp2, Http2(three) + "and more"));
  for (const std::string& bad : {
           Http2(std::string("\0\0\5\4\0\0\0\0\0", 9)),  // incomplete settings
           Http2(std::string("\0\0\0\1\0\0\0\0\0", 9)),  // HEADERS
           Http2(std::string("\0\0\0\4\1\0\0\0\0", 9)),  // an acknowledgement
           Http2(std::string("\0\0\0\4\0\0\0\0\1", 9)),  // on a stream
           Http2(std::string("\6\0\0\4\0\0\0\0\0", 9)),  // far too many settings
           Http2(empty).substr(0, 32),                   // truncated
           std::string("GET / HTTP/1.1\r\nHost: somewhere\r\n"),
           std::string(33, '\0'),
       }) {
    EXPECT_FALSE(BeginsAs(ConnectionPreface::kHttp2, bad)) << bad;
  }
}

TEST(ConnectionPrefaceTest, TlsBeginsWithAClientHello) {
  EXPECT_TRUE(BeginsAs(ConnectionPreface::kTls, std::string("\x16\3\1\2\0\1", 6)));
  EXPECT_TRUE(BeginsAs(ConnectionPreface::kTls, std::string("\x16\3\3\0\xc8\1 and more", 15)));
  for (const std::string& bad : {
           std::string("\x17\3\1\2\0\1", 6),    // application data
           std::string("\x16\2\1\2\0\1", 6),    // older than SSL 3
           std::string("\x16\3\1\0\3\1", 6),    // too short
           std::string("\x16\3\1\x7f\0\1", 6),  // longer than a record may be
           std::string("\x16\3\1\2\0\2", 6),    // ServerHello
           std::string("\x16\3\1\2\0", 5),      // truncated
           std::string(kHttp2Preface),
       }) {
    EXPECT_FALSE(BeginsAs(ConnectionPreface::kTls, bad)) << bad;
  }
}

TEST(ConnectionPrefaceTest, OnlyValidPrefacesReachGrpc) {
  FakePsHandler handler;
  const auto server = StartGrpcPsServer("127.0.0.1:0", &handler);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  const std::string settings("\0\0\0\4\0\0\0\0\0", 9);
  {
    RawPeer good(address);
    EXPECT_TRUE(good.Send(Http2(settings)));
    EXPECT_GE(good.Answer(), 9) << "gRPC sends its settings";
    // Sends a ping, which has fewer bytes than the gate waited for.
    EXPECT_TRUE(good.Send(std::string("\0\0\x8\6\0\0\0\0\0", 9) + "12345678"));
    while (!absl::StrContains(good.answers(), "12345678")) ASSERT_GT(good.Answer(), 0);
  }
  {
    RawPeer in_pieces(address);
    EXPECT_TRUE(in_pieces.Send(Http2(settings).substr(0, 30)));
    absl::SleepFor(absl::Milliseconds(50));
    EXPECT_TRUE(in_pieces.Send(Http2(settings).substr(30)));
    EXPECT_GE(in_pieces.Answer(), 9);
  }
  // gRPC would answer these with its settings or with an error.
  for (const std::string& bad : {
           Http2(std::string("\0\0\5\4\0\0\0\0\0", 9)),
           std::string("\x16\3\1\0\xc8\1", 6) + std::string(40, 'x'),
           std::string("GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n"),
       }) {
    RawPeer peer(address);
    EXPECT_TRUE(peer.Send(bad)) << bad;
    EXPECT_EQ(peer.Answer(), 0) << bad;
  }
  EXPECT_TRUE(MakeGrpcPsClient(address)->GetStatus({}, absl::Seconds(60)).ok());
}

TEST(ConnectionPrefaceTest, AConnectionWithoutAWholePrefaceIsClosedAfterAWait) {
  FakePsHandler handler;
  TransportOptions options;
  options.limits.handshake = absl::Milliseconds(500);
  const auto server = StartGrpcPsServer("127.0.0.1:0", &handler, options);
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string address = (*server)->address();
  for (const std::string& incomplete : {std::string(kHttp2Preface).substr(0, 9), std::string()}) {
    RawPeer peer(address);
    EXPECT_TRUE(peer.Send(incomplete)) << incomplete;
    EXPECT_EQ(peer.Answer(), 0) << incomplete;
  }
  EXPECT_TRUE(MakeGrpcPsClient(address)->GetStatus({}, absl::Seconds(60)).ok());
}

}  // namespace
}  // namespace pushpull
