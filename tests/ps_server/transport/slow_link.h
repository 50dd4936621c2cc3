// A slow network between clients and a server of this machine.
#ifndef PUSHPULL_TESTS_PS_SERVER_TRANSPORT_SLOW_LINK_H_
#define PUSHPULL_TESTS_PS_SERVER_TRANSPORT_SLOW_LINK_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace pushpull {

// Listens on a port, and passes the bytes of each connection on to the server: what the client
// sends at 1.6 MB/s at most, and what the server sends at once.
class SlowLink {
 public:
  // server: "127.0.0.1:port".
  explicit SlowLink(const std::string& server) {
    EXPECT_TRUE(absl::SimpleAtoi(server.substr(server.rfind(':') + 1), &server_port_));
    sockaddr_in name = Loopback(0);
    socklen_t size = sizeof(name);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&name), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&name), &size);
    address_ = absl::StrCat("127.0.0.1:", ntohs(name.sin_port));
    accepting_ = std::thread([this] { Accept(); });
  }
  ~SlowLink() {
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    for (const int fd : sockets_) shutdown(fd, SHUT_RDWR);
    for (std::thread& thread : passing_) thread.join();
    for (const int fd : sockets_) close(fd);
    close(listener_);
  }
  SlowLink(const SlowLink&) = delete;
  SlowLink& operator=(const SlowLink&) = delete;

  const std::string& address() const { return address_; }

 private:
  static sockaddr_in Loopback(int port) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    name.sin_port = htons(static_cast<uint16_t>(port));
    return name;
  }

  void Accept() {
    for (;;) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      const int server = socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in name = Loopback(server_port_);
      sockets_.insert(sockets_.end(), {client, server});
      if (connect(server, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) continue;
      passing_.emplace_back([client, server] { Pass(client, server, absl::Milliseconds(10)); });
      passing_.emplace_back([client, server] { Pass(server, client, absl::ZeroDuration()); });
    }
  }

  // Passes bytes on until one side closes its connection, and then closes the other one.
  static void Pass(int from, int to, absl::Duration pause) {
    char bytes[16384];
    for (;;) {
      const ssize_t size = recv(from, bytes, sizeof(bytes), 0);
      if (size <= 0 || send(to, bytes, size, MSG_NOSIGNAL) != size) break;
      absl::SleepFor(pause);
    }
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }

  const int listener_ = socket(AF_INET, SOCK_STREAM, 0);
  int server_port_ = 0;
  std::string address_;
  std::vector<int> sockets_;          // used by accepting_ while it runs
  std::vector<std::thread> passing_;  // likewise
  std::thread accepting_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_TRANSPORT_SLOW_LINK_H_
