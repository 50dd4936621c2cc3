// Checks the connection preface: the first bytes that a peer has to send. Connections with a wrong
// one are closed before they reach gRPC, where each connection costs about a millisecond of
// processor time and, for its transport and buffers, megabytes. All functions are thread-safe.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_CONNECTION_PREFACE_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_CONNECTION_PREFACE_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace pushpull {

enum class ConnectionPreface {
  kHttp2,  // RFC 9113, 3.4: the preface, then the header of a SETTINGS frame
  kTls,    // RFC 8446, 5.1 and 4: the header of a handshake record, then ClientHello's type
};

// Number of bytes that are checked. An honest peer sends them without waiting for an answer.
constexpr size_t PrefaceSize(ConnectionPreface preface) {
  return preface == ConnectionPreface::kTls ? 6 : 24 + 9;
}
inline constexpr size_t kMaxPrefaceSize = PrefaceSize(ConnectionPreface::kHttp2);

// The most bytes that an honest peer sends before its first message arrives: a TLS handshake with a
// certificate chain, or HTTP/2's settings and perhaps the headers of a call. The limit exists
// because gRPC reads and processes everything that has arrived without a pause.
constexpr int MaxGreetingBytes(ConnectionPreface preface) {
  return (preface == ConnectionPreface::kTls ? 8 : 4) * 1024;
}

// Returns whether `bytes`, the beginning of what a peer sent, is a valid connection preface.
// Returns false if there are fewer than PrefaceSize(preface).
bool BeginsAs(ConnectionPreface preface, absl::string_view bytes);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_CONNECTION_PREFACE_H_
