#include "ps_server/transport/listen.h"

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/wire/grpc/grpc_runtime.h"
#include "common/wire/security/transport_credentials.h"
#include "ps_server/transport/listening_sockets.h"

namespace pushpull {

ConnectionPreface PrefaceOf(const TransportCredentials* credentials) {
  const bool tls = credentials != nullptr && credentials->encrypted();
  return tls ? ConnectionPreface::kTls : ConnectionPreface::kHttp2;
}

absl::StatusOr<ListeningServer> StartListening(const std::string& address,
                                               const TransportCredentials* credentials,
                                               const ServerLimits& limits,
                                               grpc::ServerBuilder* builder, ConnectionTable* table,
                                               CallWatch* watch) {
  PP_ASSIGN_OR_RETURN(ListeningSockets sockets, ListeningSockets::Bind(address));
  InitGrpcRuntime();

  ListeningServer result;
  result.address = sockets.address();
  result.acceptor = builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      credentials == nullptr ? grpc::InsecureServerCredentials() : credentials->ForServer());
  result.server = builder->BuildAndStart();
  if (result.server == nullptr) {
    return absl::InternalError(absl::StrCat("gRPC failed to start a server for ", address));
  }
  const auto deliver = [acceptor = result.acceptor.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
  PP_ASSIGN_OR_RETURN(result.gate, ConnectionGate::Open(std::move(sockets), PrefaceOf(credentials),
                                                        limits, table, watch, deliver));
  result.server->GetHealthCheckService()->SetServingStatus(kHealthServiceName, false);
  return result;
}

}  // namespace pushpull
