// Serves a PsHandler over gRPC, together with the health service (names "" and
// "ps.ParameterServer"). The handler sees no fields that this build does not know. With TLS
// (TransportOptions::credentials), it sees only calls that the access table allows, and only
// messages whose worker_id is in the caller's certificate.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_GRPC_PS_SERVER_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_GRPC_PS_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/wire/grpc/channel_options.h"
#include "common/wire/ps_handler.h"

namespace pushpull {

// Thread-safe.
class GrpcPsServer {
 public:
  virtual ~GrpcPsServer() = default;  // calls Stop(absl::ZeroDuration())

  // The listening address with the port actually bound: "127.0.0.1:40123" or "unix:/path".
  virtual const std::string& address() const = 0;

  // Sets the health status of "ps.ParameterServer", which is NOT_SERVING at first. The name "" (the
  // process) is SERVING from the start.
  virtual void SetServing(bool serving) = 0;

  // Reports NOT_SERVING, accepts no new calls, and waits up to `grace` for the calls in flight;
  // then cancels them (the handler's CancelFn is called). Returns when no call is left. Later calls
  // of Stop return at once.
  virtual void Stop(absl::Duration grace) = 0;
};

// Starts a server. address: "host:port" (port 0: any free port) or "unix:/path" (replaces a stale
// socket file, but not one that a server listens on). The handler must outlive the server.
// ALREADY_EXISTS: another process listens there; INVALID_ARGUMENT or UNAVAILABLE: the address
// cannot be bound for another reason, which the message names; INTERNAL: gRPC does not start.
absl::StatusOr<std::unique_ptr<GrpcPsServer>> StartGrpcPsServer(
    const std::string& address, PsHandler* handler, const TransportOptions& options = {});

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_GRPC_PS_SERVER_H_
