// The gRPC channel arguments of clients and servers. The default values come from measurements
// (scripts/bench/ps_round).
#ifndef PUSHPULL_COMMON_WIRE_GRPC_CHANNEL_OPTIONS_H_
#define PUSHPULL_COMMON_WIRE_GRPC_CHANNEL_OPTIONS_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/wire/grpc/server_limits.h"

namespace pushpull {

class PeerSecret;
class TransportCredentials;

// Options of a client or a server; both sides use every field that does not name a side.
struct TransportOptions {
  // Null means plaintext (common/wire/security/transport_credentials.h).
  std::shared_ptr<const TransportCredentials> credentials = nullptr;
  // Secret shared by the ps tasks; null means none (common/wire/security/peer_secret.h). In
  // plaintext the coordinator proves its orders to the shards with it, and a server rejects orders
  // without such a proof.
  std::shared_ptr<const PeerSecret> peer_secret = nullptr;
  // Client: transfers the payloads of chunks through shared memory if the server runs on the same
  // machine (common/wire/shared_memory).
  bool shared_memory = true;
  // Client: a channel to a host name that has had no connection for this long is replaced, so that
  // the name is looked up again (common/wire/grpc/peer_channel.h).
  absl::Duration renew_channel_after = absl::Seconds(3);
  // Server: an older connection accepts no new calls. It is closed when the calls in flight have
  // ended, after kConnectionGrace at the latest; clients reconnect by themselves. A call that
  // begins in that moment may be refused with UNAVAILABLE before the server has seen it; callers
  // repeat it. This bounds how long a certificate stays in use after it was replaced or has
  // expired.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  // Largest message received: a chunk with its header. A larger one ends its call with
  // RESOURCE_EXHAUSTED. The clients of ps tasks allow more, because a shard answers Snapshot with
  // the names of its tensors (ps_server/runtime/checkpointer.h).
  int max_message_bytes = (1 << 20) + 64 * 1024;
  // How many bytes the socket reader prepares to receive at first. gRPC 1.51 splits them into
  // slices of 64 KiB.
  int read_chunk_bytes = 4 << 20;
  // Receive window of one stream: how many bytes a peer may send ahead of a slow reader.
  int stream_window_bytes = 4 << 20;
  // How many bytes a stream queues for sending before its writer blocks. The queue holds
  // references, not copies.
  int write_buffer_bytes = 4 << 20;
  // A connection on which nothing arrives for `keepalive_time_milliseconds` is probed. It is closed
  // if data or a probe stays unacknowledged for `keepalive_timeout_milliseconds`, which gRPC also
  // sets as TCP_USER_TIMEOUT. The sum is less than a lease, so that calls continue on a new
  // connection soon after a network failure. TCP's retransmissions alone would take longer: their
  // intervals grow as long as the failure lasts.
  int keepalive_time_milliseconds = 2000;
  int keepalive_timeout_milliseconds = 5000;
  // Server: how many received bytes gRPC and the handler may hold together before gRPC reads more
  // slowly.
  size_t memory_quota_bytes = size_t{1} << 30;
  // Server only.
  ServerLimits limits = {};
};

// How long calls may continue on a connection that has reached max_connection_age.
inline constexpr absl::Duration kConnectionGrace = absl::Minutes(2);

// Default of max_connection_age for a server with TLS.
inline constexpr absl::Duration kTlsConnectionAge = absl::Minutes(10);

grpc::ChannelArguments ClientChannelArguments(const TransportOptions& options);

// Also sets the memory quota.
void ConfigureServer(const TransportOptions& options, grpc::ServerBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_CHANNEL_OPTIONS_H_
