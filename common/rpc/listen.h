// What servers share: an address behind a gate, and gRPC behind that.
#ifndef PUSHPULL_COMMON_RPC_LISTEN_H_
#define PUSHPULL_COMMON_RPC_LISTEN_H_

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/rpc/call_watch.h"
#include "common/rpc/connection_gate.h"
#include "common/rpc/connection_table.h"
#include "common/rpc/opening_bytes.h"
#include "common/rpc/server_limits.h"

namespace pushpull {

class TransportCredentials;

// Stop the gate before the server. Members go in the reverse order: no connection is handed to a
// server that is gone.
struct ListeningServer {
  std::unique_ptr<grpc::Server> server;
  std::string address;  // with the real port
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<ConnectionGate> gate;
};

// And channelz.
enum class Reflection { kOff, kOn };

// How the peers of a server with these credentials begin; null: plaintext.
Opening OpeningOf(const TransportCredentials* credentials);

// Binds the address, adds the health service (name "" serving, kHealthServiceName not) and starts.
// Every connection passes a ConnectionGate; table and watch must outlive the server. credentials:
// null for plaintext. Errors as StartGrpcPsServer.
absl::StatusOr<ListeningServer> StartListening(const std::string& address,
                                               const TransportCredentials* credentials,
                                               Reflection reflection, const ServerLimits& limits,
                                               grpc::ServerBuilder* builder, ConnectionTable* table,
                                               CallWatch* watch);

inline constexpr char kHealthServiceName[] = "ps.ParameterServer";

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_LISTEN_H_
