// For whom the peer of a connection may speak. The table of roles (access_table.h) has been asked
// before a call gets here; this is about the worker_id inside the messages.
#ifndef PUSHPULL_COMMON_RPC_SECURITY_CALLER_RULE_H_
#define PUSHPULL_COMMON_RPC_SECURITY_CALLER_RULE_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/rpc/security/peer_identity.h"

namespace grpc {
class AuthContext;
class ServerContextBase;
}  // namespace grpc

namespace pushpull {

// The identity in the certificate that the TLS handshake has verified, from the connection's
// properties. UNAUTHENTICATED: there is none.
absl::StatusOr<PeerIdentity> IdentityOfPeer(const grpc::AuthContext& context);

// A value; of one call.
class CallerRule {
 public:
  // Plaintext: nobody knows who calls, every worker_id passes.
  static CallerRule Anybody() { return CallerRule(); }
  // Over TLS: the worker_ids of the certificate; a peer without an identity speaks for nobody.
  static CallerRule OfPeer(const grpc::ServerContextBase& context);

  // PERMISSION_DENIED naming both ids.
  absl::Status CheckWorkerId(uint32_t worker_id) const;

  // Checks the worker_id that a request claims, in its own field or in that of its key. Requests
  // without one, and those of operators, who name other people's ids, pass.
  template <typename Request>
  absl::Status Check(const Request& request) const {
    if constexpr (requires { request.worker_id(); }) {
      return CheckWorkerId(request.worker_id());
    } else if constexpr (requires { request.key().worker_id(); }) {
      return CheckWorkerId(request.key().worker_id());
    } else {
      return absl::OkStatus();
    }
  }

 private:
  CallerRule() = default;

  bool nobody_ = false;
  std::optional<PeerIdentity> worker_;  // set: the rule is that of this worker
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SECURITY_CALLER_RULE_H_
