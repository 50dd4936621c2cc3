// The one place where calls are refused by role: gRPC asks it about every call of a TLS connection,
// whatever service it is for, before any handler hears of it.
#ifndef PUSHPULL_COMMON_RPC_SECURITY_ACCESS_PROCESSOR_H_
#define PUSHPULL_COMMON_RPC_SECURITY_ACCESS_PROCESSOR_H_

#include <grpcpp/security/auth_metadata_processor.h>

#include <string>
#include <utility>

namespace pushpull {

// Thread-safe; never blocks. Answers UNAUTHENTICATED for a peer without an identity and
// PERMISSION_DENIED, naming identity and method, for one of another job or with a role that the
// access table does not let call this method.
class AccessProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit AccessProcessor(std::string job) : job_(std::move(job)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& auth_metadata, grpc::AuthContext* context,
                       OutputMetadata* consumed_auth_metadata,
                       OutputMetadata* response_metadata) override;

 private:
  const std::string job_;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SECURITY_ACCESS_PROCESSOR_H_
