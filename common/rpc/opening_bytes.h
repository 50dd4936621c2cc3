// How a peer has to begin. Whoever does not never reaches gRPC, for which every connection is dear:
// channel arguments, a transport, buffers; half a millisecond and megabytes.
#ifndef PUSHPULL_COMMON_RPC_OPENING_BYTES_H_
#define PUSHPULL_COMMON_RPC_OPENING_BYTES_H_

#include <cstddef>

#include "absl/strings/string_view.h"

namespace pushpull {

enum class Opening {
  kHttp2,  // RFC 9113, 3.4: the preface, then a SETTINGS frame, whose header is looked at
  kTls,    // RFC 8446, 5.1 and 4: the header of a handshake record, and ClientHello's type
};

// Bytes that are looked at. An honest peer sends them without waiting for an answer.
constexpr size_t OpeningSize(Opening opening) { return opening == Opening::kTls ? 6 : 24 + 9; }
inline constexpr size_t kMaxOpeningSize = OpeningSize(Opening::kHttp2);

// More than an honest peer sends before it is answered: a TLS handshake with a chain of
// certificates, or HTTP/2's settings and perhaps a call's headers. What waits unread gRPC would
// read, and work on, in one go.
constexpr int MaxGreetingBytes(Opening opening) {
  return (opening == Opening::kTls ? 8 : 4) * 1024;
}

// bytes: the first OpeningSize(opening) ones, or more.
bool BeginsAs(Opening opening, absl::string_view bytes);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_OPENING_BYTES_H_
