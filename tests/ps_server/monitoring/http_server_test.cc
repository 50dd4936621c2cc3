#include "ps_server/monitoring/http_server.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"

#include "ps_server/monitoring/process_stats.h"
#include "tests/ps_server/monitoring/http_client.h"

namespace pushpull {
namespace {

class HttpServerTest : public ::testing::Test {
 protected:
  void Start(HttpServerOptions options = {}) {
    HttpCallbacks callbacks;
    callbacks.get = [this](const HttpRequest& request) {
      ++requests_;
      HttpResponse response;
      response.headers = {{"X-Test", "1"}};
      response.body = request.path == "/large"
                          ? large_
                          : std::make_shared<const std::string>(
                                absl::StrCat("path ", request.path, " host ", request.host, "\n"));
      return response;
    };
    callbacks.tick = [this] { ++ticks_; };
    auto server = StartHttpServer(options, std::move(callbacks));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  int port() const { return server_->port(); }
  // Blocks until the server has `count` connections. Returns false after half a minute.
  bool AwaitConnections(int count) {
    for (int i = 0; i < 3000 && server_->connections() != count; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    return server_->connections() == count;
  }

  // More than the sockets of a connection hold while the client reads nothing.
  const std::shared_ptr<const std::string> large_ =
      std::make_shared<const std::string>(std::string(16 << 20, 'x'));
  std::atomic<int> requests_{0};
  std::atomic<int> ticks_{0};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, AnswersGetAndHeadAndCloses) {
  Start();
  const std::string answer = Get(port(), "/some%20where?a=b");
  EXPECT_EQ(CodeOf(answer), 200) << answer;
  EXPECT_EQ(BodyOf(answer), "path /some where host localhost\n");
  EXPECT_TRUE(absl::StrContains(answer, "Connection: close\r\n")) << answer;
  EXPECT_TRUE(absl::StrContains(answer, "X-Test: 1\r\n")) << answer;
  const std::string head = Ask(port(), "HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(CodeOf(head), 200);
  EXPECT_EQ(BodyOf(head), "");
  EXPECT_EQ(CodeOf(Ask(port(), "GET / HTTP/1.0\r\n\r\n")), 200);
  EXPECT_EQ(BodyOf(Get(port(), "/large")).size(), large_->size());
  EXPECT_GE(ticks_, 1);
}

TEST_F(HttpServerTest, RefusesOtherMethodsWithoutReadingTheirBodies) {
  Start();
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "BREW"}) {
    const std::string answer =
        Ask(port(),
            method + " / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000000\r\n\r\nsome body");
    EXPECT_EQ(CodeOf(answer), 405) << method << ": " << answer;
    EXPECT_TRUE(absl::StrContains(answer, "Allow: GET, HEAD\r\n")) << answer;
  }
  EXPECT_EQ(requests_, 0);
}

TEST_F(HttpServerTest, RefusesOversizeRequests) {
  Start();
  const std::string start = "GET / HTTP/1.1\r\nHost: h\r\n";
  for (const std::string& request :
       {"GET /" + std::string(100000, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n",
        start + "X: " + std::string(100000, 'b') + "\r\n\r\n", std::string(100000, 'c')}) {
    RawConnection connection(port());
    connection.Send(request);
    const std::string answer = connection.ReadAll();
    EXPECT_TRUE(CodeOf(answer) == 414 || CodeOf(answer) == 431 || answer.empty()) << answer;
    EXPECT_TRUE(connection.closed());
  }
  std::string many = start;
  for (int i = 0; i < 5000; ++i) absl::StrAppend(&many, "H", i, ": v\r\n");
  EXPECT_NE(CodeOf(Ask(port(), many + "\r\n")), 200);
  EXPECT_EQ(requests_, 0);
  EXPECT_EQ(CodeOf(Get(port(), "/")), 200) << "other clients are still served";
}

// A line of several megabytes without an end must not accumulate in memory.
TEST_F(HttpServerTest, EndlessLinesTakeNoMemory) {
  HttpServerOptions options;
  options.connection_deadline = absl::Seconds(1);
  Start(options);
  const uint64_t before = ReadProcessStats().resident_bytes;
  std::vector<std::unique_ptr<RawConnection>> connections;
  const std::string piece(1 << 20, 'z');
  for (int i = 0; i < 8; ++i) {
    connections.push_back(std::make_unique<RawConnection>(port()));
    for (int j = 0; j < 16 && connections.back()->Send(piece); ++j) {
    }
  }
  EXPECT_LT(ReadProcessStats().resident_bytes, before + (16 << 20));
  EXPECT_EQ(CodeOf(Get(port(), "/")), 200);
}

TEST_F(HttpServerTest, DisconnectsSlowClients) {
  HttpServerOptions options;
  options.connection_deadline = absl::Milliseconds(300);
  Start(options);
  RawConnection dribbler(port());
  RawConnection silent(port());
  RawConnection deaf(port());  // asks for a large answer and does not read it
  deaf.Send("GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
  const absl::Time deadline = absl::Now() + absl::Seconds(30);
  while (dribbler.Send("G") && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(20));
  EXPECT_LT(absl::Now(), deadline) << "sending an occasional byte kept the connection alive";
  silent.ReadAll();
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(AwaitConnections(0));
  EXPECT_LT(deaf.ReadAll().size(), large_->size());
}

// Idle clients take all places. The others wait until the deadline has ended the idle ones.
TEST_F(HttpServerTest, ServesTwoHundredClientsWithinItsLimit) {
  HttpServerOptions options;
  options.max_connections = 16;
  options.connection_deadline = absl::Seconds(2);
  Start(options);
  const uint64_t descriptors = ReadProcessStats().open_descriptors;
  std::vector<std::unique_ptr<RawConnection>> clients;
  for (int i = 0; i < 16; ++i) clients.push_back(std::make_unique<RawConnection>(port()));
  EXPECT_TRUE(AwaitConnections(16));
  int most = 0;
  for (int i = 0; i < 184; ++i) {
    clients.push_back(std::make_unique<RawConnection>(port()));
    EXPECT_TRUE(clients.back()->Send("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    most = std::max(most, server_->connections());
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    EXPECT_EQ(CodeOf(clients[i]->ReadAll()), i < 16 ? 0 : 200) << "client " << i;
    EXPECT_TRUE(clients[i]->closed()) << "client " << i;
    most = std::max(most, server_->connections());
  }
  EXPECT_LE(most, 16);
  EXPECT_TRUE(AwaitConnections(0));
  clients.clear();
  EXPECT_LE(ReadProcessStats().open_descriptors, descriptors + 2);
}

TEST_F(HttpServerTest, StopsWithoutWaitingForConnections) {
  HttpServerOptions options;
  options.connection_deadline = absl::Minutes(2);
  Start(options);
  std::vector<std::unique_ptr<RawConnection>> open;
  for (int i = 0; i < 20; ++i) {
    open.push_back(std::make_unique<RawConnection>(port()));
    open.back()->Send(i % 2 == 0 ? "GET / HT" : "GET /large HTTP/1.1\r\nHost: h\r\n\r\n");
  }
  ASSERT_TRUE(AwaitConnections(20));
  const absl::Time before = absl::Now();
  server_.reset();
  EXPECT_LT(absl::Now() - before, absl::Minutes(1));
  for (const auto& connection : open) {
    connection->ReadAll();
    EXPECT_TRUE(connection->closed());
  }
}

TEST_F(HttpServerTest, AnIpv6AddressMayBeInBrackets) {
  EXPECT_EQ(HttpAuthority("::1", 80), "[::1]:80");
  EXPECT_EQ(HttpAuthority("[::1]", 80), "[::1]:80");
  EXPECT_EQ(HttpAuthority("127.0.0.1", 80), "127.0.0.1:80");
  HttpServerOptions options;
  for (const char* host : {"::1", "[::1]"}) {
    options.host = host;
    const absl::Status started =
        StartHttpServer(options, {[](const HttpRequest&) { return HttpResponse(); }, [] {}})
            .status();
    // A machine may have no IPv6.
    EXPECT_TRUE(started.ok() || absl::IsUnavailable(started)) << started;
  }
}

TEST_F(HttpServerTest, AllAddressesAreThoseOfBothFamilies) {
  HttpServerOptions options;
  options.host = "0.0.0.0";
  Start(options);
  EXPECT_EQ(CodeOf(Get(port(), "/")), 200);
  const int any_port = port();
  HttpServerOptions ipv6;
  ipv6.host = "::1";
  const auto has_ipv6 =
      StartHttpServer(ipv6, {[](const HttpRequest&) { return HttpResponse(); }, [] {}});
  if (!has_ipv6.ok()) GTEST_SKIP() << "this machine has no IPv6: " << has_ipv6.status();
  RawConnection connection(any_port, AF_INET6);
  EXPECT_TRUE(connection.connected());
  connection.Send("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(CodeOf(connection.ReadAll()), 200);
  options.host = "::";
  Start(options);
  EXPECT_EQ(CodeOf(Get(port(), "/")), 200);
}

TEST_F(HttpServerTest, ErrorsTellTheUserWhatToDo) {
  Start();
  HttpServerOptions options;
  options.port = port();
  const auto second = StartHttpServer(options, {});
  EXPECT_TRUE(absl::IsAlreadyExists(second.status())) << second.status();
  EXPECT_TRUE(absl::StrContains(second.status().message(), "another process listens there"));
  options.host = "not a host";
  EXPECT_TRUE(absl::IsInvalidArgument(StartHttpServer(options, {}).status()));
  options.host = "192.0.2.1";  // reserved for documentation, so no machine has it
  EXPECT_TRUE(absl::IsUnavailable(StartHttpServer(options, {}).status()));
}

}  // namespace
}  // namespace pushpull
