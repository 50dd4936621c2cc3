// Serves a PsHandler over gRPC, with the health service (names "" and "ps.ParameterServer") and,
// with TransportOptions::debug_services, reflection and channelz. With TLS
// (TransportOptions::credentials) every call passes the access table, and every worker_id in a
// message has to be one of the caller's certificate, before the handler sees it.
#ifndef PUSHPULL_COMMON_RPC_GRPC_PS_SERVER_H_
#define PUSHPULL_COMMON_RPC_GRPC_PS_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/ps_handler.h"
#include "common/rpc/channel_options.h"

namespace pushpull {

// Thread-safe.
class GrpcPsServer {
 public:
  virtual ~GrpcPsServer() = default;  // as Stop(absl::ZeroDuration())

  // Where it listens, with the real port: "127.0.0.1:40123", "unix:/path".
  virtual const std::string& address() const = 0;

  // What the health service says of "ps.ParameterServer": false until told otherwise. The name ""
  // (the process) serves from the start.
  virtual void SetServing(bool serving) = 0;

  // Says NOT_SERVING, takes no new calls, waits so long for those in flight, then cancels them (the
  // handler sees CancelFn). Returns when no call is left. Later calls return at once.
  virtual void Stop(absl::Duration grace) = 0;
};

// address: "host:port" (port 0: any free one) or "unix:/path" (a stale socket file is replaced, a
// live one is not). The handler must outlive the server. ALREADY_EXISTS: somebody listens there;
// INVALID_ARGUMENT or UNAVAILABLE: another reason why it cannot be bound, named.
absl::StatusOr<std::unique_ptr<GrpcPsServer>> StartGrpcPsServer(
    const std::string& address, PsHandler* handler, const TransportOptions& options = {});

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_GRPC_PS_SERVER_H_
