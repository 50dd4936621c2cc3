// Starts a gRPC server whose connections all pass a ConnectionGate. Used by GrpcPsServer and
// HealthServer.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_LISTEN_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_LISTEN_H_

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/wire/grpc/server_limits.h"
#include "ps_server/transport/call_watch.h"
#include "ps_server/transport/connection_gate.h"
#include "ps_server/transport/connection_preface.h"
#include "ps_server/transport/connection_table.h"

namespace pushpull {

class TransportCredentials;

// Stop the gate before shutting the server down. The gate is the last member, so it is destroyed
// first and never hands a connection to a server that is gone.
struct ListeningServer {
  std::unique_ptr<grpc::Server> server;
  std::string address;  // with the port actually bound
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<ConnectionGate> gate;
};

// The connection preface that a server with these credentials expects. Null means plaintext.
ConnectionPreface PrefaceOf(const TransportCredentials* credentials);

// Binds `address` and starts a server with the services of `builder` and the health service, in
// which the name "" is SERVING and kHealthServiceName is NOT_SERVING. table and watch must outlive
// the server. Null credentials mean plaintext. Errors: as for StartGrpcPsServer.
absl::StatusOr<ListeningServer> StartListening(const std::string& address,
                                               const TransportCredentials* credentials,
                                               const ServerLimits& limits,
                                               grpc::ServerBuilder* builder, ConnectionTable* table,
                                               CallWatch* watch);

inline constexpr char kHealthServiceName[] = "ps.ParameterServer";

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_LISTEN_H_
