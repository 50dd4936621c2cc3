// A plain TCP client that can do what well-behaved HTTP clients do not do.
#ifndef PUSHPULL_TESTS_PS_SERVER_MONITORING_HTTP_CLIENT_H_
#define PUSHPULL_TESTS_PS_SERVER_MONITORING_HTTP_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace pushpull {

// A TCP connection to 127.0.0.1, or to ::1 with the family AF_INET6.
class RawConnection {
 public:
  explicit RawConnection(int port, int family = AF_INET)
      : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v4.sin_port = htons(static_cast<uint16_t>(port));
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_addr = in6addr_loopback;
    v6.sin6_port = v4.sin_port;
    const int result = family == AF_INET6
                           ? connect(fd_, reinterpret_cast<sockaddr*>(&v6), sizeof(v6))
                           : connect(fd_, reinterpret_cast<sockaddr*>(&v4), sizeof(v4));
    connected_ = result == 0;
  }
  ~RawConnection() { close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  bool connected() const { return connected_; }
  // Returns false if the server has closed the connection.
  bool Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }
  // Reads until the server closes the connection or sends nothing for `patience`.
  std::string ReadAll(absl::Duration patience = absl::Seconds(30)) {
    std::string text;
    char buffer[65536];
    closed_ = false;
    for (;;) {
      pollfd waiting{fd_, POLLIN, 0};
      if (poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) <= 0)
        return text;
      const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
      closed_ = n <= 0;
      if (closed_) return text;
      text.append(buffer, static_cast<size_t>(n));
    }
  }
  // True if the server closed the connection during the last ReadAll.
  bool closed() const { return closed_; }

 private:
  const int fd_;
  bool connected_ = false;
  bool closed_ = false;
};

inline std::string Ask(int port, const std::string& request) {
  RawConnection connection(port);
  connection.Send(request);
  return connection.ReadAll();
}

inline std::string Get(int port, const std::string& path, const std::string& host = "localhost") {
  return Ask(port, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n"));
}

// The status code of an answer, such as 404 of "HTTP/1.1 404 Not Found...", or 0 if there is none.
inline int CodeOf(const std::string& answer) {
  return answer.size() < 12 ? 0 : atoi(answer.c_str() + 9);
}

inline std::string BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_MONITORING_HTTP_CLIENT_H_
