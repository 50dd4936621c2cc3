// A server that offers only grpc.health.v1, for health probes that must not reach the training
// port.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_HEALTH_SERVER_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_HEALTH_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

// Has the names "" and "ps.ParameterServer", as in grpc_ps_server.h. Thread-safe.
class HealthServer {
 public:
  virtual ~HealthServer() = default;  // stops the server

  // address and SetServing: as in GrpcPsServer.
  virtual const std::string& address() const = 0;
  virtual void SetServing(bool serving) = 0;
};

// Starts a plaintext server. address and errors: as for StartGrpcPsServer.
absl::StatusOr<std::unique_ptr<HealthServer>> StartHealthServer(const std::string& address);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_HEALTH_SERVER_H_
