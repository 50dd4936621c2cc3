// Makes the gRPC clients of clones.
#ifndef PUSHPULL_WORKER_CLIENT_GRPC_CLIENTS_H_
#define PUSHPULL_WORKER_CLIENT_GRPC_CLIENTS_H_

#include "absl/status/statusor.h"

#include "common/wire/security/peer_identity.h"
#include "common/wire/transport_security.h"
#include "worker/client/ps_session.h"

namespace pushpull {

// Checks the TLS files, and that they allow the clones of these worker ids, before the first
// connection. shared_memory: use it with ps tasks on this machine. INVALID_ARGUMENT and the errors
// of reading files: the TLS files cannot be used. Thread-safe.
absl::StatusOr<PsSession::ClientFactory> MakeGrpcClients(const TransportSecurity& security,
                                                         bool shared_memory, WorkerIdRange ids);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_GRPC_CLIENTS_H_
