// What a server lets its peers take, whoever they are. Defaults suit a job of 256 clones; none of
// them is reached by an honest one. SECURITY.md says what each is against.
#ifndef PUSHPULL_COMMON_RPC_SERVER_LIMITS_H_
#define PUSHPULL_COMMON_RPC_SERVER_LIMITS_H_

#include <cstdint>

#include "absl/time/time.h"

namespace pushpull {

struct ServerLimits {
  // Connections at once, and those of them from one address (on a unix socket: of one user). When
  // there are so many, one that has not sent a single request makes room; else the new one is
  // refused.
  // gRPC may keep a receive buffer (4 MiB of address space, resident as far as it was used) for
  // each.
  int max_connections = 512;
  int max_connections_per_peer = 256;
  // New connections from one host that gRPC gets per second in the long run. As a job's clones all
  // come together, max_connections_per_peer of them may at once; the others wait for their turn.
  double connections_per_second = 64.0;
  // For a connection's first bytes; then for the end of the TLS and HTTP/2 handshakes.
  absl::Duration handshake = absl::Seconds(10);
  // Whoever sends more than a greeting (opening_bytes.h) before it is answered is not read from,
  // and closed after so long: closed at once, it would be back at once.
  absl::Duration tarpit = absl::Seconds(2);
  // A connection without any call.
  absl::Duration connection_idle = absl::Minutes(2);

  // Calls in flight on one connection; more wait at the client. A clone has at most four.
  int max_streams = 32;
  // Of one call. Debian's gRPC 1.51 looks after it has read a header whole: see max_undelivered.
  int max_metadata_bytes = 8 * 1024;
  // Threads for the calls that block one: reflection.
  int max_threads = 8;

  // What a TCP connection has sent and no whole message has come of: the beginnings of messages
  // and headers, which gRPC 1.51 keeps before it knows how long they become. An honest peer's: a
  // message (that of a push which was refused in its middle stays one), and the window of each push
  // under way. The connection is cut. Headers are copied whole whenever a piece of them comes, so
  // it is the processor's time, too, that the first two numbers save: a connection may have the
  // first, and as much again as messages have come of it, up to the second. (The first: the window
  // of a connection that nobody has read from, 64 KiB, and a call's headers.)
  int64_t max_undelivered_at_first_bytes = 80 << 10;
  int64_t max_undelivered_without_push_bytes = 3 << 19;
  int64_t max_undelivered_per_push_bytes = 6 << 20;
  int64_t max_undelivered_bytes = 16 << 20;
  // Of all connections together; then those are cut that have not delivered anything for a second.
  int64_t max_total_undelivered_bytes = 256 << 20;
  // A connection that holds more than 64 KiB of such bytes and delivers nothing for so long is cut.
  absl::Duration stalled_message = absl::Seconds(10);
  // So long new connections from an address (but for unix sockets) wait, before gRPC gets them,
  // after one from it was cut for one of these reasons, or went after more than a greeting without
  // any message. Those that are there stay. Doubled, up to the last number, while it goes on like
  // that; not longer, as an honest clone may be waiting at the same address.
  absl::Duration barred = absl::Milliseconds(500);
  absl::Duration barred_at_most = absl::Seconds(2);
  // Calls that a peer may take back on one connection at once, and per second in the long run.
  int max_cancelled_calls = 200;
  double max_cancelled_calls_per_second = 4.0;

  // Between two chunks of a push.
  absl::Duration push_idle = absl::Seconds(60);
  // A chunk of a pull that the peer does not take.
  absl::Duration pull_stalled = absl::Seconds(10);
  // Any call, whatever deadline its peer chose.
  absl::Duration longest_call = absl::Minutes(15);
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SERVER_LIMITS_H_
