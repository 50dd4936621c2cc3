// A peer that may send arbitrary bytes.
#ifndef PUSHPULL_TESTS_PS_SERVER_TRANSPORT_RAW_PEER_H_
#define PUSHPULL_TESTS_PS_SERVER_TRANSPORT_RAW_PEER_H_

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace pushpull {

inline constexpr char kHttp2Preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// An HTTP/2 frame (RFC 9113, section 4.1).
inline std::string Http2Frame(int type, int flags, uint32_t stream, const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame.push_back(static_cast<char>(payload.size() >> shift));
  frame.push_back(static_cast<char>(type));
  frame.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) frame.push_back(static_cast<char>(stream >> shift));
  return frame + payload;
}

class RawPeer {
 public:
  // Connects to "127.0.0.1:port".
  explicit RawPeer(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    name.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&name), sizeof(name)), 0);
    SetPatience(absl::Seconds(60));
  }
  ~RawPeer() { close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  bool Send(const std::string& bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Sends the HTTP/2 preface and settings, and waits for the server's answer, which shows that gRPC
  // has the connection.
  bool Greet() { return Send(kHttp2Preface + Http2Frame(4, 0, 0, "")) && Answer() > 0; }
  // Returns the number of bytes that the server answers, 0 if it closes or resets the connection,
  // or -1 if it does neither.
  ssize_t Answer() {
    char bytes[4096];
    const ssize_t size = recv(fd_, bytes, sizeof(bytes), 0);
    if (size > 0) answers_.append(bytes, size);
    return size < 0 && errno == ECONNRESET ? 0 : size;
  }
  const std::string& answers() const { return answers_; }
  // Reads until the server closes the connection. Returns false if nothing arrives for `patience`.
  bool AwaitEnd(absl::Duration patience = absl::Seconds(60)) {
    SetPatience(patience);
    for (;;) {
      const ssize_t size = Answer();
      if (size <= 0) return size == 0;
    }
  }

 private:
  void SetPatience(absl::Duration patience) {
    const timeval timeout = absl::ToTimeval(patience);
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  }

  const int fd_;
  std::string answers_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_TRANSPORT_RAW_PEER_H_
