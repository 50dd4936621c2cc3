// Refuses calls by the role of the caller. gRPC asks it about every call on a TLS connection, of
// any service, before the call reaches a handler.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_ACCESS_PROCESSOR_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_ACCESS_PROCESSOR_H_

#include <grpcpp/security/auth_metadata_processor.h>

#include <string>
#include <utility>

#include "common/base/log_limiter.h"

namespace pushpull {

// Process returns UNAUTHENTICATED for a peer without an identity. It returns PERMISSION_DENIED,
// with the identity in the message, for a peer of another job and for a role that may not call the
// method according to the access table. Refused calls are logged, within PeerLogLimiter.
// Thread-safe; never blocks.
class AccessProcessor final : public grpc::AuthMetadataProcessor {
 public:
  // job: the name of the job that this server belongs to.
  explicit AccessProcessor(std::string job) : job_(std::move(job)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& auth_metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed_auth_metadata,
                       OutputMetadata* response_metadata) override;

 private:
  const std::string job_;
  PeerLogLimiter refusals_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_ACCESS_PROCESSOR_H_
