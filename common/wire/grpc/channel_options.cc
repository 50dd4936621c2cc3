// Tested by tests/ps_server/transport/half_open_test.cc.
#include "common/wire/grpc/channel_options.h"

#include <grpc/grpc.h>
#include <grpcpp/resource_quota.h>

#include <vector>

namespace pushpull {
namespace {

struct Argument {
  const char* name;
  int value;
};

std::vector<Argument> SharedArguments(const TransportOptions& options) {
  return {
      // Lets a chunk travel as one HTTP/2 frame, without frame headers between its bytes.
      {GRPC_ARG_HTTP2_MAX_FRAME_SIZE, (1 << 24) - 1},
      {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, options.stream_window_bytes},
      {GRPC_ARG_HTTP2_WRITE_BUFFER_SIZE, options.write_buffer_bytes},
      {GRPC_ARG_TCP_READ_CHUNK_SIZE, options.read_chunk_bytes},
      {GRPC_ARG_TCP_MIN_READ_CHUNK_SIZE, options.read_chunk_bytes},
      {GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, options.read_chunk_bytes},
      {GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, options.max_message_bytes},
      // The limit above holds for the bytes that arrive. A compressed message of 1 MiB may have
      // a thousand times as many inside, which nothing would bound. No program here compresses.
      {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
      {GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_time_milliseconds},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.keepalive_timeout_milliseconds},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
  };
}

}  // namespace

grpc::ChannelArguments ClientChannelArguments(const TransportOptions& options) {
  grpc::ChannelArguments arguments;
  for (const auto& [name, value] : SharedArguments(options)) arguments.SetInt(name, value);
  // Lets the connection's flow-control window grow. It would stay at 64 KiB otherwise, and the
  // server would wait for a window update in the middle of every chunk of a pull.
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 1);
  // Callers retry calls themselves. gRPC's retries would keep every message in memory until the
  // call is answered.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // Proxies named in the environment (http_proxy) are meant for web traffic.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A server that was restarted or unreachable is found again within about three seconds, and
  // within about six if its name has got another address (PeerChannel). "Min" is
  // gRPC's timeout of one attempt to connect. TCP retransmits a lost SYN after one second and after
  // three, so a slightly longer attempt would gain nothing.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2500);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return arguments;
}

void ConfigureServer(const TransportOptions& options, grpc::ServerBuilder* builder) {
  for (const auto& [name, value] : SharedArguments(options)) {
    builder->AddChannelArgument(name, value);
  }
  // Bytes that clones may send ahead occupy memory of the server, so its windows do not grow.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  builder->SetMaxReceiveMessageSize(options.max_message_bytes);
  for (const grpc_compression_algorithm refused : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(refused, false);
  }
  // With SO_REUSEPORT the kernel would distribute connections over two servers on the same port.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  const ServerLimits& limits = options.limits;
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, limits.max_streams);
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, limits.max_metadata_bytes);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(limits.handshake)));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                              static_cast<int>(absl::ToInt64Milliseconds(limits.connection_idle)));
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              options.keepalive_time_milliseconds / 2);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  if (options.max_connection_age < absl::InfiniteDuration()) {
    builder->AddChannelArgument(
        GRPC_ARG_MAX_CONNECTION_AGE_MS,
        static_cast<int>(absl::ToInt64Milliseconds(options.max_connection_age)));
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                                static_cast<int>(absl::ToInt64Milliseconds(kConnectionGrace)));
  }
  grpc::ResourceQuota quota("pushpull");
  quota.Resize(options.memory_quota_bytes);
  builder->SetResourceQuota(quota);
}

}  // namespace pushpull
