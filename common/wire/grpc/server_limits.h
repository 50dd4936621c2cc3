// Limits that a server puts on its peers, whoever they are. The defaults suit a job of 256 clones;
// an honest clone reaches none of them. SECURITY.md says what each limit protects against.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_SERVER_LIMITS_H_
#define PUSHPULL_COMMON_WIRE_GRPC_SERVER_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace pushpull {

struct ServerLimits {
  // Simultaneous connections of all peers, and of one host (on a unix socket: of one user). At the
  // limit, a new connection replaces the oldest one that has not sent any request; if there is
  // none, the new connection is refused. gRPC may keep a receive buffer for each connection: 4 MiB
  // of address space, resident as far as it was used.
  int max_connections = 512;
  int max_connections_per_peer = 256;
  // New connections that gRPC gets from one host per second in the long run. A job's clones all
  // connect at once, so the burst is max_connections_per_peer; further connections wait.
  double connections_per_second = 64.0;
  // Time from accepting a connection until it is handed to gRPC, including the connection preface
  // and the wait for the rate limiter. gRPC then has the same time for the TLS and HTTP/2
  // handshakes.
  absl::Duration handshake = absl::Seconds(10);
  // A peer that sends more than MaxGreetingBytes (connection_preface.h) before it is answered is
  // not read from, and its connection is closed only after this time: closed at once, it would
  // reconnect at once.
  absl::Duration tarpit = absl::Seconds(2);
  // How long a connection may stay open without any call.
  absl::Duration connection_idle = absl::Minutes(2);

  // Calls in flight on one connection; the client queues further calls. A clone has at most four.
  int max_streams = 32;
  // Metadata of one call. Debian's gRPC 1.51 checks this only after it has read the whole header;
  // the limits of undelivered bytes below bound what it reads until then.
  int max_metadata_bytes = 8 * 1024;

  // Limits of undelivered bytes: bytes of a TCP connection that have not become a whole message.
  // They are the beginnings of messages and headers, which gRPC 1.51 buffers before it knows how
  // long they will be. A connection above its limit is cut. Its limit is
  //
  //   max_undelivered_without_push_bytes
  //   + max_undelivered_per_push_bytes for each push in progress,
  //
  // but at most max_undelivered_bytes. An honest peer's undelivered bytes are one message (the rest
  // of a push that was refused halfway never becomes one), and the flow-control window of each push
  // in progress. The first value is more than the longest message
  // (TransportOptions::max_message_bytes), the initial window of a connection, 64 KiB, and the
  // headers of a call. A slow network may need seconds for such a message, which may be the first
  // one of its connection: a registration names all variables. The value also limits processor
  // time: gRPC copies a header again whenever another piece of it arrives.
  int64_t max_undelivered_without_push_bytes = 3 << 19;
  int64_t max_undelivered_per_push_bytes = 6 << 20;
  int64_t max_undelivered_bytes = 16 << 20;
  // Undelivered bytes of all connections together. Above this limit, connections that have not
  // completed a message for a second are cut, those with the most undelivered bytes first.
  int64_t max_total_undelivered_bytes = 256 << 20;
  // A connection with more than 64 KiB of undelivered bytes is cut if it completes no message for
  // this time.
  absl::Duration stalled_message = absl::Seconds(10);
  // How long new connections from a host are blocked, before gRPC gets them, after one of its
  // connections was cut for undelivered bytes or cancelled calls, or ended after sending more than
  // MaxGreetingBytes but no message. Existing connections stay, and unix sockets are never blocked.
  // The time doubles with each further offence, up to `max_block_time`, which is short because
  // honest clones may be waiting at the same address.
  absl::Duration block_time = absl::Milliseconds(500);
  absl::Duration max_block_time = absl::Seconds(2);
  // Calls that a peer may cancel on one connection: a burst, and per second in the long run.
  int max_cancelled_calls = 200;
  double max_cancelled_calls_per_second = 4.0;

  // Bytes of a request, except of pushes, of requests with a list of variables or their values
  // (Register, DeclareVariables) and of the coordinator's orders; these may be as long as a
  // message. A request stays in memory as long as its call waits. The longest of an honest clone is
  // a pull that names 20,000 chunks.
  int64_t max_request_bytes = 64 << 10;
  // Time between two chunks of a push.
  absl::Duration push_idle = absl::Seconds(60);
  // Time that a peer has to receive one chunk of a pull.
  absl::Duration pull_stalled = absl::Seconds(10);
  // Duration of any call, whatever deadline the client has set.
  absl::Duration longest_call = absl::Minutes(15);
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_SERVER_LIMITS_H_
