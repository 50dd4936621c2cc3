// Channel arguments of both sides. The values are measured ones (scripts/bench/ps_round), not
// defaults.
#ifndef PUSHPULL_COMMON_RPC_CHANNEL_OPTIONS_H_
#define PUSHPULL_COMMON_RPC_CHANNEL_OPTIONS_H_

#include <grpcpp/server_builder.h>
#include <grpcpp/support/channel_arguments.h>

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/rpc/server_limits.h"

namespace pushpull {

class PeerSecret;
class TransportCredentials;

struct TransportOptions {
  // common/rpc/security/transport_credentials.h; null: plaintext.
  std::shared_ptr<const TransportCredentials> credentials = nullptr;
  // common/rpc/security/peer_secret.h; null: none. In plaintext a client proves its orders to
  // shards with it, and a server obeys no order without such a proof.
  std::shared_ptr<const PeerSecret> peer_secret = nullptr;
  // Client: a worker on the server's machine moves the payloads of its chunks through shared memory
  // (common/rpc/shared_memory).
  bool shared_memory = true;
  // Server: a connection that is older takes no new calls and is closed when those under way have
  // ended, in kConnectionGrace at the latest. So certificates that have been replaced or have
  // expired stop counting. Clients connect anew by themselves.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  // Server: reflection and channelz, for people with tools like grpcdebug.
  bool debug_services = true;
  // Of one message: a chunk and its header. A larger one ends its call with RESOURCE_EXHAUSTED.
  int max_message_bytes = (1 << 20) + 64 * 1024;
  // A receive buffer of the socket reader. Small ones cut messages into many slices.
  int read_chunk_bytes = 4 << 20;
  // Receive window of one stream: bytes a peer may have on the way to a slow reader.
  int stream_window_bytes = 4 << 20;
  // Bytes that a stream takes for sending before its writer blocks (references, not copies).
  int write_buffer_bytes = 4 << 20;
  // A connection without news for so long is probed; one whose bytes or probe are not acknowledged
  // for so long is closed (TCP_USER_TIMEOUT too). Together less than a lease: after a network
  // failure calls go on over a new connection at once, instead of waiting for TCP's own
  // repetitions, whose pauses grow as long as the failure has lasted.
  int keepalive_time_milliseconds = 2000;
  int keepalive_timeout_milliseconds = 5000;
  // Server: received bytes that gRPC and the handler together may hold before reads are throttled.
  size_t memory_quota_bytes = size_t{1} << 30;
  // Server.
  ServerLimits limits = {};
};

inline constexpr absl::Duration kConnectionGrace = absl::Minutes(2);

// By default of a server with TLS.
inline constexpr absl::Duration kTlsConnectionAge = absl::Minutes(10);

grpc::ChannelArguments ClientChannelArguments(const TransportOptions& options);

void ConfigureServer(const TransportOptions& options, grpc::ServerBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_CHANNEL_OPTIONS_H_
