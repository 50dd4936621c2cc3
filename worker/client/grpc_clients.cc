// Tested by tests/worker/client/grpc/pushpull_client_test.cc.
// Tested by tests/e2e/training_test.py.
#include "worker/client/grpc_clients.h"

#include <string>

#include "common/base/status_macros.h"
#include "common/wire/grpc/grpc_ps_client.h"
#include "common/wire/security/transport_credentials.h"

namespace pushpull {

absl::StatusOr<PsSession::ClientFactory> MakeGrpcClients(const TransportSecurity& security,
                                                         bool shared_memory, WorkerIdRange ids) {
  TransportOptions transport;
  transport.shared_memory = shared_memory;
  PP_ASSIGN_OR_RETURN(transport.credentials,
                      TransportCredentials::Create(security, {PeerRole::kWorker}));
  PP_RETURN_IF_ERROR(CheckOwnWorkerIds(*transport.credentials, ids));
  return PsSession::ClientFactory(
      [transport](const std::string& address) { return MakeGrpcPsClient(address, transport); });
}

}  // namespace pushpull
